"""Run one task's program on a Mesos agent and report how it ends.

Uses only the standard library and `mesos_client`, Python 3.8 or later. Only `tf_executor.user` runs in the user's
Python.
"""

from .user import devices, logdir, report

__all__ = ["devices", "logdir", "report"]
__version__ = "0.1.0"
# Outside a task, programs find `tf_executor.keras` and the other modules of `user` under their public names, too.
__path__.append(f"{__path__[0]}/user")
