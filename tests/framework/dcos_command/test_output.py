"""Parts of the output as plain text."""

import io
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcos_command.output import Block, Line, Raw, Table, render_lines, status_word

CELL = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=40)
ROWS = st.lists(st.tuples(CELL, CELL, CELL), min_size=1, max_size=5)


RUNNING = Table(("task", "status"), [("worker-0", status_word("RUNNING")), ("ps-0", "-")])
WAITING = Table(("task", "why"), [("worker-0", "needs 4 cpus, best agent has 2")])


@pytest.mark.parametrize(
    ("part", "width", "lines"),
    [
        (RUNNING, None, ["task      status", "worker-0  RUNNING", "ps-0      -"]),
        (Table(("a", "b"), [("日本", "x")]), None, ["a     b", "日本  x"]),
        (WAITING, 27, ["task      why", "worker-0  needs 4 cpus,", "          best agent has 2"]),
        (Table(("pod", "why"), [("a", "one\ntwo")]), None, ["pod  why", "a    one", "     two"]),
        (Table(("task",), [], empty="There are no tasks."), None, ["There are no tasks."]),
        (Line(("└─ ", "worker-0"), wrap=False), 9, ["└─ worke…"]),
        (Line(("└─ ", "worker-0"), wrap=False), None, ["└─ worker-0"]),
        (Line(("worker-0",)), 4, ["worker-0"]),
        (Raw("a\nb\n"), None, ["a", "b"]),
    ],
)
def test_part_is_drawn(part: Block, width: int | None, lines: list[str]) -> None:
    """In columns as wide as their cells; only lines that must not wrap are cut."""
    assert lines == list(render_lines(part, width))


def test_narrow_terminal_gets_a_line_per_cell() -> None:
    wide = Table(("task", "address", "what"), [("worker-0", "10.0.0.1:31000", "-"), ("ps-0", "-", "it waits")])

    assert "task: worker-0/address:/10.0.0.1:31000/what: -//task: ps-0/address: -/what: it waits" == "/".join(
        render_lines(wide, 17)
    )
    assert ["a  b  c", "1  2  3"] == list(render_lines(Table(("a", "b", "c"), [("1", "2", "3")]), 10))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("a\tb\r\n\x1b[1;31mred\x1b[0m", "a\tb\r\n\x1b[1;31mred\x1b[0m"),
        ("\x1b]52;c;cm0gLXJm\x07", "]52;c;cm0gLXJm"),
        ("\x1b]0;title\x1b\\", "]0;title\\"),
        ("\x1b[2J\x9b2J\x1bc", "[2J2Jc"),
        ("a\u202etxt.exe\u2066b\u2029c\u200b\ufeff\U000e0041", "atxt.exebc"),
        ("\U0001f468\u200d\U0001f469 \u05d0\u0628", "\U0001f468\u200d\U0001f469 \u05d0\u0628"),
    ],
)
def test_terminal_gets_colours_but_no_commands(said: str, expected) -> None:
    """Commands could write to clipboard or input. Files and pipes get everything."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    assert (expected, said) == (Raw(said).on(Terminal()), Raw(said).on(io.StringIO()))


@pytest.mark.parametrize(
    "hostile",
    ["\x1b]0;x\x07", "\x1b[31m", "\x1b[2J", "\x9b2J", "\r", "\b", *map(chr, (0x202E, 0x2067, 0x200F, 0x2028, 0xFEFF))],
    ids=ascii,
)
def test_task_text_has_no_control_characters(hostile: str) -> None:
    """It cannot reorder, hide or break the text next to it."""
    said = f"a{hostile}b"
    lines = [
        *render_lines(Table(("why",), [(said,), (status_word(said),)])),
        *render_lines(Table((), [], empty=said)),
        *render_lines(Line((said,))),
        *render_lines(said),
    ]
    assert all(line.isprintable() for line in lines)
    assert 5 == sum(line.startswith("a") and line.endswith("b") for line in lines)


def test_incomplete_characters_are_escaped() -> None:
    """UTF-8 lacks them; names of files, as Python reads them, and JSON may have them."""
    half = os.fsdecode(b"r\xe9sultat")

    assert ["r\\udce9sultat"] == [*render_lines(half)] == [Raw(half).on(io.StringIO())]


@given(ROWS, st.integers(22, 140))
def test_lines_fit_the_terminal_without_loss(rows, width) -> None:
    drawn = list(render_lines(Table(("+", "-", "="), rows), width))

    assert all(len(line) <= width for line in drawn)
    letters = "".join(sorted("".join(cell for row in rows for cell in row)))
    assert letters == "".join(sorted(re.sub(r"[-+=: ]", "", "".join(drawn))))
    if width >= len("+: ") + 40:
        assert all(any(cell in line for line in drawn) for row in rows for cell in row)


def test_cell_without_column_name_stands_alone() -> None:
    drawn = list(render_lines(Table(("job", "", "loss", ""), [("worker", "━━━━", "0.5", "")], charts=(1, 3)), 10))

    assert ["job: worker", "━━━━", "loss: 0.5"] == drawn or ["job:", "worker", "━━━━", "loss: 0.5"] == drawn


@pytest.mark.parametrize("width", [30, 40, 50, 60])
def test_words_are_not_broken_on_narrow_terminals(width: int) -> None:
    row = ("2026-11-21 10:00:00", "worker-0", "10.0.0.12:31000", "is launched again on agent-3.example.com")
    drawn = list(render_lines(Table(("when", "task", "address", "what"), [row] * 2), width))
    wrapped = list(render_lines(Line((*(f"{cell} " for cell in row),)), width))

    for drawing in (drawn, wrapped):
        assert all(len(line) <= width for line in drawing)
        assert all(any(word in line for line in drawing) for cell in row for word in cell.split()), drawing


def test_long_path_breaks_at_a_slash() -> None:
    """A broken name is not found in the folder."""
    path = "/home/someone/dcos-tensorflow/runs/train-20261130-abcdef/logs"
    for width in (30, 40, 50, 60):
        lines = list(render_lines(Table(("task", "path"), [["worker-0", path]]), width))
        parts = [re.sub("^(worker-0|task: worker-0|path: )", "", line).strip() for line in lines]
        parts = [part for part in parts if part not in ("", "task  path", "task      path")]
        assert path == "".join(parts)
        assert {"/"} == {part[-1] for part in parts[:-1]}
