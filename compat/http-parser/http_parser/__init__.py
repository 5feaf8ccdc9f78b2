"""Stands in for the `http-parser` distribution, which does not build on current Pythons. See README.md beside it."""
