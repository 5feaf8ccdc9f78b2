"""Processes of a task: start, watch, stop, output."""
