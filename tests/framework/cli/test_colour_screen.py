"""Output on a terminal: colours, widths, control characters."""

import io
import re

import pytest
from rich.console import Console

from dcos_command.output import Line, Raw, Table, Word, status_word
from tf_scheduler.cli.common.colour import ColourScreen


def screen(width=40, **options):
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system="standard", highlight=False, **options)
    return ColourScreen(console), out


def plain(out):
    """Remove the codes of colours and fonts."""
    return re.sub(r"\x1b\[[\d;]*m", "", out.getvalue())


TABLE = Table(("task", "status", "why"), [("worker-0", status_word("RUNNING"), "[red]needs[/red] " + "4 cpus " * 8)])


def test_states_have_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    display, out = screen()

    display.show([TABLE])

    assert "\x1b[32mRUNNING\x1b[0m" in out.getvalue()


def test_no_color_disables_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """https://no-color.org"""
    monkeypatch.setenv("NO_COLOR", "1")
    display, out = screen()

    display.show([TABLE, Line((Word("x", "bad"),))])

    assert "\x1b[3" not in out.getvalue()


@pytest.mark.parametrize(
    "hostile", ["\x1b]0;x\x07", "\x1b[2J", "\x9b2J", "\r", *map(chr, (0x202E, 0x2067, 0x2028))], ids=ascii
)
@pytest.mark.parametrize("width", [16, 80])
def test_task_text_has_no_control_characters(hostile: str, width: int) -> None:
    """In a table, whether it fits or not, and in a sentence."""
    text = f"a{hostile}b"
    display, out = screen(width)
    display.show([Table(("task", "why", "w"), [(text, Word(text, "bad"), text * 2)]), Line((text,)), text])
    display.show([Table((), [], empty=text)])
    assert plain(out).replace("\n", "").isprintable()
    assert plain(out).count("a") >= 7


def test_charts_shrink_and_numbers_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar keeps its proportions at any width."""
    monkeypatch.setenv("NO_COLOR", "1")
    display, out = screen(40)
    display.show([Table(("job", "", "step"), [("worker", "#" * 20 + "." * 20, "123456/200000")], charts=(1,))])

    (row,) = [line for line in plain(out).splitlines() if "worker" in line]
    assert len(row) <= 40
    assert row.endswith("123456/200000")
    assert row.count("#") > 4
    assert abs(row.count("#") - row.count(".")) <= 1


@pytest.mark.parametrize("width", [16, 20, 30, 40, 80])
def test_tables_fit_and_keep_all_text(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brackets are not markup."""
    monkeypatch.setenv("NO_COLOR", "1")
    display, out = screen(width)

    display.show([TABLE])

    text = plain(out)
    assert all(len(line) <= width for line in text.splitlines())
    assert 8 == "".join(text.split()).count("cpus")
    assert "[red]" in "".join(text.split())


def test_tree_lines_are_cut_and_sentences_are_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    display, out = screen(20)

    display.show([Line(("└─ worker-0 ", "because " * 4), wrap=False), Line(("because " * 4,))])

    first, *others = plain(out).splitlines()
    assert first.endswith("…")
    assert 4 == " ".join(others).count("because")


def test_raw_text_is_written_unchanged() -> None:
    """Brackets are not markup, and line ends are its own."""
    display, out = screen(10)

    display.show([Raw("[bold]x[/bold] " * 3), Raw("y\n")])

    assert "[bold]x[/bold] " * 3 + "y\n" == out.getvalue()


def test_live_frames_replace_each_other() -> None:
    """The last one stays."""
    display, out = screen()

    display.show_live([["step 1"], ["step 2"]])

    text = out.getvalue()
    assert "step 1" in text
    assert text.rindex("step 2") > text.rindex("step 1")
    assert "\x1b[1A" in text or "\x1b[2K" in text
