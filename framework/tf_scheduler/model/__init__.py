"""Immutable data types of the scheduler: frozen dataclasses and enums without I/O."""
