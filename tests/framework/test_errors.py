"""Each error says what it is by attributes, so that programs read no text."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest

import tf_scheduler
from dcos_command.errors import CommandError, NothingToDoError
from mesos_local.host import MesosLocalError
from tf_scheduler.errors import SchedulerError


def below(root: type[Exception]) -> list[Any]:
    """The class and all of its subclasses in the modules loaded so far."""
    return [root, *(each for child in root.__subclasses__() for each in below(child))]


@pytest.fixture(scope="module", autouse=True)
def _every_module() -> None:
    for module in pkgutil.walk_packages(tf_scheduler.__path__, "tf_scheduler."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


@pytest.mark.parametrize("root", [SchedulerError, CommandError, MesosLocalError], ids=lambda root: root.__name__)
def test_errors_have_kind_exit_code_and_http_status(root) -> None:
    """The command line and the API handle all of them by these."""
    for error in below(root):
        assert error.__name__.endswith("Error")
        assert error.kind.replace("_", "").isalpha()
        # 124: `wait --timeout`, as of timeout(1).
        assert error.exit_code in ({0} if error is NothingToDoError else {1, 2, 3, 124})
        assert error is NothingToDoError or 400 <= error.http_status < 600
