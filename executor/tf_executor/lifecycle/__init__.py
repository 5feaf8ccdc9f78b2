"""Life cycle of the task, as a pure state machine."""
