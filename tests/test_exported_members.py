"""The packages that programs import have the members that their docstrings name."""

from importlib import import_module

import pytest

#: Package -> members that its docstring or, for the user's program, docs/reference/tasks.md names.
MEMBERS = {
    "tf_executor": ("devices", "logdir", "report"),
    "mesos_client": ("scheduler.SchedulerDriver", "executor.ExecutorDriver"),
    "mesos_local": ("cluster.LocalCluster",),
}


@pytest.mark.parametrize("package", MEMBERS)
def test_members_are_exported_and_documented(package: str) -> None:
    """Other modules and names may change without notice."""
    module = import_module(package)
    for member in MEMBERS[package]:
        home, _, name = member.rpartition(".")
        assert getattr(import_module(f"{package}.{home}".rstrip(".")), name).__doc__, member
        assert not home or member in (module.__doc__ or "")
    assert [name for name in MEMBERS[package] if "." not in name] == sorted(getattr(module, "__all__", ()))
