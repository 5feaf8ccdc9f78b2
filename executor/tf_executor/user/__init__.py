"""Modules for the user's program, installed in the sandbox as `tf_executor`.

Standard library only, Python 3.6 and later. Imports are relative because the installed package has another name.
"""

from . import devices
from .devices import logdir
from .reporting import report

__all__ = ["devices", "logdir", "report"]
