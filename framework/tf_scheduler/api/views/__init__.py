"""State in, a body and an HTTP status out. Pure: a view never waits and never changes anything.

Keys and codes: the DC/OS SDK (mesosphere/dcos-commons), and docs/api.md for ours.
"""

from .base import Answer, Problem, Snapshot, View

__all__ = ["Answer", "Problem", "Snapshot", "View"]
