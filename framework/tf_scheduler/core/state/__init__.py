"""The reducer, and indexes and rules that need only the spec and the state."""
