"""Concepts that cross a process, each once. Standard library only, Python 3.8."""
