"""What a person can do something about; the text is the whole message."""

from __future__ import annotations


class CommandError(Exception):
    """Exit code 1."""
