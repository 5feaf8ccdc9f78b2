"""Secrets of the task: fetched, delivered and redacted."""
