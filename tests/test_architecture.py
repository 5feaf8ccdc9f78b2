"""Imports follow architecture.md; packaging and dependencies are complete."""

from __future__ import annotations

import ast
import configparser
import re
import sys
from collections import Counter
from collections.abc import Container, Iterator
from pathlib import Path

import pytest

import limits
from kit.commands import run_program

HOME = Path(__file__).resolve().parent.parent
ROOTS = (HOME / "framework", HOME / "executor")
#: pymesos is not code of this project.
VENDORED = HOME / "framework" / "mesos_client" / "_vendor" / "pymesos"
FILES = [(root, path) for root in ROOTS for path in sorted(root.rglob("*.py")) if VENDORED not in path.parents]

#: What a pure module must not import: clock, chance, ids, I/O, log, threads.
IMPURE = {
    "os",
    "time",
    "random",
    "uuid",
    "logging",
    "threading",
    "socket",
    "subprocess",
    "pathlib",
    "queue",
    "datetime",
}
PURE = {
    "tf_scheduler.model",
    "tf_scheduler.core",
    "tf_scheduler.queue",
    "tf_scheduler.doctor.checks",
    "tf_scheduler.doctor.facts",
    "tf_scheduler.history.model",
    "tf_scheduler.runtimes.catalogue",
    "tf_executor.contract",
    "tf_executor.lifecycle",
}

#: Every room may import it: concepts that cross a process.
CONTRACT = "tf_executor.contract"
#: Its one module that does I/O: how every process makes requests.
CLIENT = "tf_executor.contract.http"
#: Room -> rooms that it may import (itself always). A room is a package, or a module beside packages.
ALLOWED = {
    "tf_scheduler": set(),
    "tf_scheduler.model": set(),
    "tf_scheduler.errors": set(),
    "tf_scheduler.rate_limit": set(),
    "tf_scheduler.clock": {"tf_scheduler.model"},
    "tf_scheduler.interfaces": {"tf_scheduler.model"},
    "tf_scheduler.options": {"tf_scheduler.model", "tf_scheduler.errors", "tf_scheduler.core", "tf_scheduler.queue"},
    "tf_scheduler.core": {"tf_scheduler.model"},
    "tf_scheduler.queue": {"tf_scheduler.model"},
    "tf_scheduler.mesos": {
        "tf_scheduler.model",
        "tf_scheduler.errors",
        "tf_scheduler.interfaces",
        "tf_scheduler.store.interface",
        "tf_scheduler.store.records",
        "mesos_client",
    },
    "tf_scheduler.secrets": {"tf_scheduler.model", "tf_scheduler.errors", "tf_scheduler.rate_limit"},
    "tf_scheduler.dcos": {"tf_scheduler.model", "tf_scheduler.errors", "mesos_client"},
    "tf_scheduler.store": {
        "tf_scheduler.__version__",
        "tf_scheduler.interfaces",
        "tf_scheduler.model",
        "tf_scheduler.errors",
    },
    "tf_scheduler.logging_setup": {"tf_scheduler.model", "tf_executor.secrets.encodings"},
    "tf_scheduler.metrics": {"tf_scheduler.model", "tf_scheduler.core", "tf_scheduler.store"},
    "tf_scheduler.runner": {
        "tf_scheduler.model",
        "tf_scheduler.clock",
        "tf_scheduler.core",
        "tf_scheduler.interfaces",
        "tf_scheduler.store",
    },
    "tf_scheduler.convert": {"tf_scheduler.model", "tf_scheduler.errors", "tf_scheduler.options"},
    "tf_scheduler.history": {"tf_scheduler.model", "tf_scheduler.errors"},
    "tf_scheduler.report": {"tf_scheduler.history"},
    "tf_scheduler.runtimes": {"tf_scheduler.errors"},
    "tf_scheduler.zipapp_builder": {
        "tf_scheduler.errors",
        "tf_scheduler.zipapp_builder",
        "tf_executor",
        "mesos_client",
    },
    "tf_scheduler.package": {
        "tf_scheduler.model",
        "tf_scheduler.errors",
        "tf_scheduler.options",
        "tf_scheduler.zipapp_builder",
    },
    "tf_scheduler.store.journal": {"tf_scheduler.model", "tf_scheduler.store"},
    "tf_scheduler.store.training_history": {"tf_scheduler.model", "tf_scheduler.store"},
    "tf_scheduler.store.operator_files": {
        "tf_scheduler.errors",
        "tf_scheduler.interfaces",
        "tf_scheduler.model",
        "tf_scheduler.store",
    },
    "tf_scheduler.api": {
        "tf_scheduler.model",
        "tf_scheduler.core",
        "tf_scheduler.errors",
        "tf_scheduler.rate_limit",
        "tf_scheduler.interfaces",
    },
    "tf_scheduler.doctor": {
        "tf_scheduler.errors",
        "tf_scheduler.mesos",
        "tf_scheduler.model",
        "tf_scheduler.store",
        "dcos_command",
        "mesos_client",
    },
    "tf_scheduler.web": set(),
    "dcos_command": set(),
    "mesos_client": set(),
    "mesos_local": {"tf_executor.process.ports", "tf_executor.user.archive"},
}
#: The composition roots construct everything.
ROOT_ROOMS = {"tf_scheduler.cli", "tf_scheduler.queue_service", "tf_scheduler.service", "tf_scheduler.__main__"}

#: Heavy dependency -> the only rooms that import it.
IMPORTERS = {
    "click": {"tf_scheduler.cli", "dcos_command"},
    "cryptography": {"tf_scheduler.dcos"},
    "elftools": {"mesos_local"},
    "h11": {"tf_scheduler.api"},
    "http_parser": set(),
    "httptools": set(),
    "addict": set(),
    "six": set(),
    "hvac": {"tf_scheduler.secrets"},
    "jsonschema": {"tf_scheduler.package"},
    "jwt": {"tf_scheduler.dcos"},
    "kazoo": {"tf_scheduler.store", "mesos_client"},
    "marshmallow": {"tf_scheduler.options"},
    "prometheus_client": {"tf_scheduler.metrics"},
    "pymesos": set(),
    "pypi_simple": {"mesos_local"},
    "requests": {"mesos_local", "tf_scheduler.dcos"},
    "rich": {"tf_scheduler.cli", "mesos_local"},
    # Of the composition roots, only its types.
    "starlette": {
        "tf_scheduler.api",
        "tf_scheduler.web",
        "tf_scheduler.cli",
        "tf_scheduler.service",
        "tf_scheduler.queue_service",
    },
    # The part of the executor that runs in the user's Python.
    "fsspec": {"tf_executor"},
    "tensorflow": {"tf_executor"},
    "uvicorn": {"tf_scheduler.api"},
    "yaml": {"tf_scheduler.convert"},
}


def module_of(root: Path, path: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def room_of(module: str) -> str:
    """Return the first two parts of the module's name, or the undivided package."""
    parts = module.split(".")
    undivided = parts[0] in ("dcos_command", "mesos_client", "mesos_local", "tf_executor")
    return parts[0] if undivided else ".".join(parts[:2])


def imports(path: Path, module: str) -> Iterator[str]:
    """Every absolute module name that the file imports, at any depth of it."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            source = ".".join(part for part in (base, node.module) if part)
            yield from (f"{source}.{alias.name}" for alias in node.names)


def is_allowed(room: str, allowed: set[str]) -> bool:
    """Return whether an entry allows the room, its package or one of its modules."""
    return any(room == entry or room.startswith(f"{entry}.") or entry.startswith(f"{room}.") for entry in allowed)


def is_pure(module: str) -> bool:
    return module != CLIENT and any(module == pure or module.startswith(f"{pure}.") for pure in PURE)


def ours(name: str) -> bool:
    return name.split(".")[0] in {
        "tf_scheduler",
        "tf_executor",
        "dcos_command",
        "mesos_client",
        "mesos_local",
    }


@pytest.mark.parametrize(("root", "path"), FILES, ids=lambda value: value.name if value in ROOTS else value.stem)
def test_imports_follow_the_table(root, path) -> None:
    """A room imports only rooms that the table allows; pure modules only pure ones."""
    module = module_of(root, path)
    room, found = room_of(module), set(imports(path, module))

    if room not in ROOT_ROOMS and room != "tf_executor":
        used = {room_of(name) for name in found if ours(name) and not name.startswith(CONTRACT)} - {room}
        allowed = ALLOWED[room]
        assert set() == {name for name in used if not is_allowed(name, allowed)}
    if room == "tf_executor":
        assert set() == {name for name in found if name.startswith(("tf_scheduler", "mesos_local"))}
    if module.startswith(CONTRACT):
        assert set() == {name for name in found if ours(name) and not name.startswith(CONTRACT)}
    if is_pure(module):
        assert set() == {name.split(".")[0] for name in found} & IMPURE
    top = {name.split(".")[0] for name in found}
    assert set() == {name for name in top & IMPORTERS.keys() if room not in IMPORTERS[name]}


def test_file_names_are_distinct() -> None:
    """A reader with many open files tells them apart: at most two of each name."""
    folders = (HOME / "framework" / "tf_scheduler", HOME / "executor")
    names = Counter(path.name for folder in folders for path in folder.rglob("*.py"))
    common = {"__init__.py", "__main__.py"}

    assert {} == {name: count for name, count in names.items() if count > 2 and name not in common}


def test_modules_import_in_no_circle() -> None:
    """Imports inside functions count, too: they only hide a circle."""
    files = {module_of(root, path): path for root, path in FILES}
    targets = {
        module: {name for each in imports(path, module) if (name := _module_in(each, files)) not in ("", module)}
        for module, path in files.items()
    }
    # Remove modules whose imports are all removed; what remains imports in a circle.
    while done := {module for module, names in targets.items() if not names}:
        targets = {module: names - done for module, names in targets.items() if module not in done}

    assert {} == targets


def _module_in(name: str, files: Container[str]) -> str:
    """Return the module that contains a name, empty for one of another project."""
    while name and name not in files:
        name = name.rpartition(".")[0]
    return name


@pytest.mark.parametrize(
    ("module", "unused"),
    [("mesos_local.helper_main", {"asyncio", "ssl"}), ("tf_scheduler.cli.main", {"marshmallow", "tf_scheduler.model"})],
)
def test_frequent_processes_load_little(module: str, unused: set[str]) -> None:
    """One per container, and one per command."""
    loaded = run_program(sys.executable, "-c", f"import sys, {module}; print(*sys.modules)").stdout.split()
    assert (True, set()) == (module in loaded, unused & {*loaded})


def test_every_package_is_installed() -> None:
    """`packages` in setup.cfg is written by hand, because find: takes one root only."""
    config = configparser.ConfigParser()
    config.read(HOME / "setup.cfg")
    listed = set(config["options"]["packages"].split())

    code = {name for name in listed if not name.startswith("dcos_sources.")}
    own = {module_of(root, path) for root, path in FILES if path.name == "__init__.py"}
    assert own | {"mesos_client._vendor.pymesos"} == code


def test_every_dependency_has_its_reason() -> None:
    """docs/develop/dependencies.md has a row for each of install_requires."""
    config = configparser.ConfigParser()
    config.read(HOME / "setup.cfg")
    required = {re.split(r"[=<>!~\[; ]", line)[0] for line in config["options"]["install_requires"].split("\n") if line}
    documented = set(
        re.findall(r"^\| `([\w.-]+)`", (HOME / "docs" / "develop" / "dependencies.md").read_text(), re.MULTILINE)
    )

    assert set() == required - documented


def test_size_budgets_hold() -> None:
    """Sizes stay within limits, and class names are unique."""
    result = run_program(HOME / "scripts" / "budgets", "--size")

    assert 0 == result.returncode, result.stdout + result.stderr


def test_limits_add_the_raises_up(monkeypatch) -> None:
    """A limit that ignores a raise, or a raise of nothing, would hide growth."""
    assert [] == [name for row in limits.RAISES.values() for name in row if name not in limits.BASES]
    assert all(number > 0 for row in limits.RAISES.values() for number in row.values())

    monkeypatch.setattr(limits, "RAISES", {"queue": {limits.LINES: 30, limits.WORDS: 5}, "serving": {limits.LINES: 4}})
    assert limits.BASES[limits.LINES] + 34 == limits.limit(limits.LINES)
    assert limits.BASES[limits.WORDS] + 5 == limits.limit(limits.WORDS)
    assert limits.BASES[limits.MODULES] == limits.limit(limits.MODULES)


def test_every_module_has_a_docstring() -> None:
    """Newcomers read the docstring of a package or module first."""
    silent = [module_of(root, path) for root, path in FILES if not ast.get_docstring(ast.parse(path.read_text()))]

    assert [] == silent


def test_first_lines_of_docstrings_are_short() -> None:
    """A first line of up to 80 characters fits into one line of an index."""
    files = [*(path for _, path in FILES), *sorted((HOME / "tests").rglob("*.py"))]
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    lines = (
        (path, (ast.get_docstring(node) or "").partition("\n")[0])
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, kinds)
    )

    assert [] == [f"{path.relative_to(HOME)}: {line}" for path, line in lines if len(line) > 80]


def test_every_core_module_has_its_unit_tests() -> None:
    """A unit test reports a wrong rule in its module's file, not just in a scenario."""
    core, tests = HOME / "framework" / "tf_scheduler" / "core", HOME / "tests" / "framework" / "core"
    modules = [path.relative_to(core) for path in core.rglob("*.py") if path.name != "__init__.py"]
    untested = {path.as_posix() for path in modules if not (tests / path.with_name(f"test_{path.name}")).exists()}

    assert modules
    assert set() == untested
