"""Recovery of tasks: statuses, failures, timeouts, maintenance and pod commands."""
