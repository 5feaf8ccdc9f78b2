"""Side effects of stock pymesos that an import does not have."""

from __future__ import annotations

import re
import sys

import pytest

from kit.commands import run_program
from wire.client import ROOT

IMPORTS = "import mesos_client.scheduler, mesos_client.executor"


def python(program: str) -> str:
    """Run `program` in a fresh interpreter; return what it printed."""
    done = run_program(sys.executable, "-c", program, cwd=ROOT / "framework", timeout=60)
    return (done.stdout + done.stderr).strip()


def test_p17_the_sigint_handler_stays() -> None:
    """P17: the process keeps its own handler, and signal.signal."""
    program = f"""
import signal
before = signal.getsignal(signal.SIGINT), signal.signal
{IMPORTS}
print(before == (signal.getsignal(signal.SIGINT), signal.signal))
"""
    assert "True" == python(program)


def test_p17_any_thread_may_import() -> None:
    """P17: importing outside the main thread works."""
    program = f"""
import threading
def work():
    try:
        {IMPORTS}
        print("imported")
    except Exception as error:
        print(type(error).__name__)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
    assert "imported" == python(program)


def test_p27_loggers_are_unchanged() -> None:
    """P27: no handler and no level is put on pymesos' logger."""
    program = f"""
import logging
{IMPORTS}
logger = logging.getLogger("pymesos")
print(([type(handler).__name__ for handler in logger.handlers], logger.level))
"""
    assert "([], 0)" == python(program)


def test_an_executor_does_not_load_the_schedulers_half() -> None:
    """The executor's bundle has no requests or http_parser, and imports quickly."""
    program = """
import sys
import mesos_client.executor
from mesos_client.results import DriverAborted, DriverDisconnected
heavy = {"requests", "urllib3", "http_parser", "kazoo", "mesos_client.scheduler"}
print(sorted(heavy & set(sys.modules)))
"""
    assert python(program) == "[]"


@pytest.mark.parametrize(
    ("library", "module"),
    [("kazoo", "zookeeper_detector.py"), (r"(\._vendor\.)?pymesos", "_pymesos.py")],
)
def test_each_library_has_one_importer(library, module) -> None:
    """One module imports it, so that it can be replaced there."""
    importing = re.compile(rf"^\s*(import|from) {library}\b", re.MULTILINE)
    sources = (ROOT / "framework" / "mesos_client").glob("*.py")
    assert [module] == [path.name for path in sources if importing.search(path.read_text())]


def test_p30_unsafe_pymesos_modules_are_not_loaded() -> None:
    """P30: the drivers never import pymesos.subprocess, which unpickles network data."""
    program = f"""
import sys
{IMPORTS}
print([name for name in sys.modules if "pymesos.subprocess" in name])
"""
    assert python(program) == "[]"
