"""All of `dcos-tensorflow local`."""

from __future__ import annotations

from .chaos.command import chaos
from .install import install, uninstall
from .local import local
from .run import run
from .serve import serve

for command in (run, serve, install, uninstall, chaos):
    local.add_command(command)

__all__ = ["local"]
