"""Reducer of the state, index of the spec, back-off, and what outlasts the job."""
