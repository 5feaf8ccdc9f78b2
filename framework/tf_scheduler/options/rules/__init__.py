"""Checks across several options; each check is a function that yields problems."""
