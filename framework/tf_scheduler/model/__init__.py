"""Nouns: frozen dataclasses and enums. No clock, no ids made here, no I/O; only the standard library."""
