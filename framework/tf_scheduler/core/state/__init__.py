"""The reducer and what follows from the spec and the state alone."""
