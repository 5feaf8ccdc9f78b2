"""The checklists in CONTRIBUTING.md name the files that a change touches."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kit.commands import run_program

HOME = Path(__file__).resolve().parent.parent
PACKAGE = "framework/tf_scheduler"
#: Kind of a change -> expression for an existing example, product files that contain it, and the maximum for a change.
EXAMPLES = {
    "limit of the process": (
        r"\bfrozen_after\b",
        ("executor/tf_executor/contract/settings.py", "executor/tf_executor/task.py", "options/schema/policies.py"),
        3,
    ),
    "task state": (
        r"class TaskState\(|assert_never\((status\.)?state",
        ("executor/tf_executor/contract/states.py", "api/views/overview.py", "core/recovery/status.py"),
        3,
    ),
    "field of the progress": (
        r"\bseconds_left\b",
        (
            "executor/tf_executor/contract/reports.py",
            "executor/tf_executor/progress/tracking.py",
            "framework/dcos_command/service.py",
            "cli/local_run/view.py",
        ),
        4,
    ),
    "command": (r'"describe"', ("framework/dcos_command/command.py", "framework/dcos_command/service.py"), 5),
    "strategy": (r'HOROVOD = "horovod"', ("executor/tf_executor/contract/strategies.py",), 3),
    "converter": (r"^from \. import .*\btony\b", ("convert/conversion.py",), 2),
    "metric": (r"\brevives_throttled\b", ("metrics/prometheus.py",), 2),
    "cause of a failure": (r"it exceeded its memory, disk", ("core/recovery/failure_causes.py",), 2),
    "panel of the page": (r"\brenderSettings\(", ("web/static/main.js", "web/static/settings.js"), 3),
}


def checklists() -> dict[str, list[str]]:
    """Return the paths in each row, by the kind of the change."""
    text = (HOME / "CONTRIBUTING.md").read_text().partition("## Checklists")[2]
    rows = re.findall(r"^\| ([a-z][^|]*?)(?:, such as [^|]*)? \| ([^|]*) \|$", text, re.MULTILINE)
    return {kind: re.findall(r"`([\w/.-]+[\w/])`", cell) for kind, cell in rows if kind != "a new"}


def located(name: str) -> Path:
    """Return the file of a name from the root, or below the scheduler's package."""
    return next(path for path in (HOME / name, HOME / PACKAGE / name) if path.exists() or path == HOME / PACKAGE / name)


def test_checklists_name_existing_files() -> None:
    """A moved file takes its place in the checklists along."""
    names = {name for names in checklists().values() for name in names if "/" in name}

    assert len(names) > 20
    assert set() == {name for name in names if not located(name).exists()}


@pytest.mark.parametrize("kind", EXAMPLES)
def test_checklist_holds_for_an_example(kind: str) -> None:
    """The example is where the checklist sends a reader, and nowhere else."""
    pattern, files, maximum = EXAMPLES[kind]
    command = ["git", "grep", "-lE", pattern, "--", "framework", "executor"]
    listed = run_program(*command, cwd=HOME, check=True).stdout.split()

    assert {str(located(name).relative_to(HOME)) for name in files} == set(listed)
    assert len(listed) <= maximum
    assert set() == {name for name in files if name not in checklists()[kind]}
