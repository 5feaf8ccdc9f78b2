"""Build the package's files: scheduler, executor, sub-command, examples, icons.

Each artefact is one file. Builds are reproducible: the same sources give the same bytes.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tf_scheduler.zipapp_builder import build, build_bundle, licences, pack, package_files, write

SCHEDULER, EXECUTOR = "tensorflow-scheduler.pyz", "tensorflow-executor.pyz"
COMMAND, EXAMPLES = "dcos-tensorflow", "tensorflow-examples.zip"
ICONS = ("icon-small.png", "icon-medium.png", "icon-large.png")
#: Packages of this project that the scheduler imports, and the distributions that they need.
_PACKAGES = ("tf_scheduler", "tf_executor", "mesos_client")
_DISTRIBUTIONS = (
    "click",
    "http-parser",
    "hvac",
    "kazoo",
    "marshmallow",
    "prometheus-client",
    "pymesos",
    "requests",
    "starlette",
    "uvicorn",
)
#: Files besides Python: the certificates that requests trusts, the files of the web page.
_DATA_SUFFIXES = (".pem",)
_SOURCE_SUFFIXES = (".py", ".css", ".html", ".js", ".svg")
#: Parts of distributions that a scheduler never imports.
_EXCLUDED = ("pymesos/subprocess/", "pymesos/zkpython.py", "kazoo/tests/", "kazoo/testing/")
_DESCRIPTION = "the scheduler's bundle"
_MAIN = """\
import sys

if sys.version_info < {minimum}:
    sys.exit("tensorflow-scheduler needs Python {text} or later, this is " + sys.version.split()[0])
from tf_scheduler.cli.commands.scheduler import main

main()
"""
_COMMAND_MAIN = b"""\
import sys

if sys.version_info < (3, 8):
    sys.exit("dcos tensorflow needs Python 3.8 or later, this is " + sys.version.split()[0])
from dcos_command.main import main

sys.exit(main())
"""


@dataclass(frozen=True, slots=True)
class Artefact:
    path: Path
    sha256: str


def build_artefacts(folder: Path, sources_folder: Path) -> list[Artefact]:
    """Build all artefacts in `folder`; keep unchanged files. Raises BundleError."""
    build_scheduler(folder / SCHEDULER)
    build_bundle(folder / EXECUTOR)
    write_changed(command_bytes(), folder / COMMAND, "the sub-command", 0o755)
    write_changed(examples_bytes(sources_folder.parent / "examples"), folder / EXAMPLES, "the examples")
    for name in ICONS:
        write_changed((sources_folder / name).read_bytes(), folder / name, "the icon")
    paths = [folder / name for name in (SCHEDULER, EXECUTOR, COMMAND, EXAMPLES, *ICONS)]
    return [Artefact(path, sha256(path.read_bytes())) for path in paths]


def sha256(content: bytes) -> str:
    """The digest in hex, as `sha256sum` prints it."""
    return hashlib.sha256(content).hexdigest()


def build_scheduler(target: Path) -> Path:
    """Build the scheduler with its imports, uncompiled: `python3 FILE run`.

    It runs on the Python that built it, and newer ones: the required distributions depend on the version.
    """
    minimum = sys.version_info[:2]
    main = _MAIN.format(minimum=tuple(minimum), text=".".join(map(str, minimum)))
    return build({"__main__.py": main.encode(), **dict(_scheduler_files())}, target, _DESCRIPTION)


def _scheduler_files() -> Iterator[tuple[str, bytes]]:
    for package in _PACKAGES:
        yield from package_files(package, _DESCRIPTION, _SOURCE_SUFFIXES)
    for name in sorted(_closure(_DISTRIBUTIONS)):
        yield from licences(name).items()
        for path in importlib.metadata.files(name) or ():
            text = path.as_posix()
            is_needed = path.suffix in (".py", *_DATA_SUFFIXES) and not text.startswith(("..", *_EXCLUDED))
            # An installation by `setup.py install` (pip before 23.1 without wheel) lists files of its source, too.
            if is_needed and Path(path.locate()).is_file():
                yield text, path.read_binary()


def _closure(names: tuple[str, ...]) -> set[str]:
    """Return the distributions with all their installed requirements."""
    closure: set[str] = set()
    left = list(names)
    while left:
        if (name := left.pop()) not in closure:
            with suppress(importlib.metadata.PackageNotFoundError):
                left += [_name(line) for line in importlib.metadata.requires(name) or () if "extra ==" not in line]
                closure.add(name)
    return closure


def _name(requirement: str) -> str:
    """The distribution of a requirement line, in normalized form."""
    name = re.match(r"[\w.-]+", requirement)
    return re.sub(r"[-_.]+", "-", name[0]).lower() if name else ""


def command_bytes() -> bytes:
    """The sub-command `dcos tensorflow` with click; uncompressed for a fixed digest."""
    files = {
        name: content for package in ("dcos_command", "click") for name, content in package_files(package, COMMAND)
    }
    return pack({"__main__.py": _COMMAND_MAIN, **files, **licences("click")}, zipfile.ZIP_STORED)


def examples_bytes(folder: Path) -> bytes:
    """The example jobs, each in its folder."""
    files: Mapping[str, bytes] = {
        path.relative_to(folder.parent).as_posix(): path.read_bytes() for path in sorted(folder.glob("*/*.*"))
    }
    return pack(files, runnable=False)


def write_changed(content: bytes, target: Path, what: str, mode: int = 0o644) -> bool:
    """Write a file unless it has this content; return whether it changed."""
    changed = not target.is_file() or target.read_bytes() != content
    if changed:
        write(content, target, what, mode)
    return changed
