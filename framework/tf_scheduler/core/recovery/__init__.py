"""What happens when a task is lost: why it ended, what must start again with it, how soon, and how often."""
