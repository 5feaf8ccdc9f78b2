"""Helpers that many tests share."""
