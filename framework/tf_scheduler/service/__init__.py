"""Composition of the scheduler process: constructs and connects its parts."""
