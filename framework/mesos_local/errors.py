"""The errors that people see. They are here, alone, so that the helpers that run for every container import little."""

from __future__ import annotations


class MesosLocalError(Exception):
    """The local cluster cannot do what was asked; the message says why and what to do about it."""

    @property
    def sentence(self) -> str:
        """The first line, which says what is wrong."""
        return str(self).partition("\n")[0]

    @property
    def details(self) -> str:
        """The lines after it, such as the end of a log; empty if there are none."""
        return str(self).partition("\n")[2]


class NodeDiedError(MesosLocalError):
    """A node of the cluster ended though nobody asked for that; `details` has the end of its log."""


class DamagedRecordError(MesosLocalError):
    """What is recorded of a cluster cannot be understood, so that its processes are found by their mark only."""
