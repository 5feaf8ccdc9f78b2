"""Messages between executor, agent and scheduler."""
