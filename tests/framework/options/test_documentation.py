"""docs/reference/options.md and `options explain`."""

import re
from pathlib import Path

import pytest

from tf_scheduler.cli.commands.options import COMMON_OPTIONS
from tf_scheduler.options.environment import variable_name
from tf_scheduler.options.generate import explain
from tf_scheduler.options.schema.document import OPTIONS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "options.md"


@pytest.mark.parametrize("option", OPTIONS, ids=str)
def test_options_page_has_every_option(option) -> None:
    """With its variable; no cell ends early."""
    (line,) = [line for line in PAGE.read_text().splitlines() if f"`{variable_name(option)}`" in line]

    assert (str(option) in ("secrets", "volumes")) == (not line.startswith(f"| `{option}` | "))


def test_options_page_begins_with_common_options() -> None:
    """The dozen come before the other 240; the sections are linked, and exist."""
    lines = PAGE.read_text().splitlines()
    common = lines.index("## Common options")
    rows = [line for line in lines[common : lines.index("## Commands")] if line.startswith("| `")]
    others = PAGE.read_text().partition("\nAll others: ")[2].partition("\n\n")[0]
    links = re.findall(r"\]\(#(\w+)\)", others)

    assert common < 20
    assert list(COMMON_OPTIONS) == [row.split("`")[1] for row in rows]
    assert {line.removeprefix("## ") for line in lines if re.fullmatch(r"## [a-z_]+", line)} == set(links)


def test_explain_has_all_facts() -> None:
    """Type, unit, bounds, default, example, effect of an update, variable."""
    (option,) = [option for option in OPTIONS if str(option) == "worker.mem"]

    assert explain(option).splitlines() == [
        "worker.mem: integer; MB; 32 to 100000000",
        "  Memory of each task.",
        "  default: 4096",
        "  update: restart",
        "  variable: WORKER_MEM",
    ]
