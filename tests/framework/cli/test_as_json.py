"""`--json` of commands that ask no service, and tables on narrow terminals."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dcos_command.output import Table
from runs import a_run
from tf_scheduler.cli.common.colour import ColourScreen
from tf_scheduler.history.database import RunDatabase

TONY = Path(__file__).resolve().parents[1] / "convert" / "files" / "tony.xml"
RUNS = ("20260101-000000-aaaaaa", "20260102-000000-bbbbbb")


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invoke):
    """Run a command with a history of two runs; return its standard output."""
    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    shelf = RunDatabase(tmp_path / "dcos-tensorflow" / "history.db")
    for run in RUNS:
        shelf.save(replace(a_run(), id=run))

    def ask(*words: object) -> str:
        code, out, err = invoke(*words)
        assert 0 == code, err
        return str(out)

    return ask


@pytest.mark.parametrize(
    "words",
    [
        ("history",),
        ("history", "show", RUNS[0]),
        ("history", "compare", *RUNS),
        ("history", "reproduce", RUNS[0]),
        ("runtime", "list"),
        ("convert", TONY),
        ("options", "explain", "worker.cpus"),
        ("options", "schema"),
        ("package", "validate"),
    ],
    ids=lambda words: " ".join(map(str, words[:2])),
)
def test_json_option_works_before_and_after_the_command(asked, words, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable has the same effect."""
    after = json.loads(asked(*words, "--json"))

    assert after == json.loads(asked("--json", *words))
    monkeypatch.setenv("DCOS_TENSORFLOW_JSON", "1")
    assert after == json.loads(asked(*words))


def test_json_option_of_a_group_applies_to_its_commands(asked) -> None:
    assert RUNS[0] == json.loads(asked("history", "--json", "show", RUNS[0]))["id"]


def test_narrow_table_has_a_line_for_each_cell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not a column of single characters."""
    monkeypatch.setenv("COLUMNS", "20")

    rows = [("digits", "succeeded", "0"), ("mnist", "failed", "3")]
    ColourScreen().show([Table(("run", "state", "restarts"), rows)])

    words = capsys.readouterr().out.split()
    assert ["run:", "digits", "state:", "succeeded", "restarts:", "0"] == words[:6]
