"""Builds the executor's bundle: one zip file that an agent's `python3` can run, with all it needs, no compiled module.

The bundle runs on every Python from 3.8 on. The same input gives the same bytes, so that agents may cache it by name.
"""

from __future__ import annotations

from pathlib import Path

from .pyz import BundleError, build, cache_folder, digest, licences, sources

__all__ = ["BundleError", "build_bundle"]

#: What goes in: our packages, and what pymesos imports. http_parser is the adapter that needs httptools only when it is
#: used, which the executor never does.
PACKAGES = ("tf_executor", "mesos_client", "pymesos", "addict", "six", "http_parser")
#: Distributions whose licence must travel with their code.
DISTRIBUTIONS = ("pymesos", "addict", "six")
#: pymesos/subprocess runs programs by pickles from the network; pymesos/zkpython needs a compiled module.
LEFT_OUT = ("pymesos/subprocess/", "pymesos/zkpython.py")
_WHAT = "the executor's bundle"
#: What modules leave behind stays: the garbage collector need not look through it, while they load nor later.
_MAIN = b"""\
import gc
import sys

if sys.version_info < (3, 8):
    sys.exit("tf_executor needs Python 3.8 or later, this agent's python3 is " + sys.version.split()[0])
gc.disable()
from tf_executor.main import main

gc.freeze()
gc.enable()
sys.exit(main())
"""


def build_bundle(output: Path | None = None) -> Path:
    """Build the bundle unless `output` is current already; return its path.

    Default `output`: `dcos-tensorflow/executor/tf_executor-<digest>.pyz` in the user's cache folder (XDG_CACHE_HOME).
    Safe when two processes do it at once. Raise BundleError when a package is missing or `output` cannot be written.
    """
    files = {"__main__.py": _MAIN, **_sources()}
    for distribution in DISTRIBUTIONS:
        files.update(licences(distribution))
    target = output or cache_folder("executor") / f"tf_executor-{digest(files)[:16]}.pyz"
    return build(files, target, _WHAT)


def _sources() -> dict[str, bytes]:
    found = (entry for package in PACKAGES for entry in sources(package, _WHAT))
    return {name: content for name, content in found if not name.startswith(LEFT_OUT)}
