"""All of `dcos-tensorflow local`."""

from __future__ import annotations

from .install import install, uninstall
from .local import local
from .run import run
from .serve import serve

for command in (run, serve, install, uninstall):
    local.add_command(command)

__all__ = ["local"]
