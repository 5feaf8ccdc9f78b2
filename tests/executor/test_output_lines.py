"""Progress in what programs print."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_executor.process.output import TAIL_BYTES
from tf_executor.progress import output_lines
from tf_executor.progress.output_lines import MAX_LINE, OutputProgress
from tf_scheduler.options.schema.values import parse_line_pattern


class Stream:
    """Output as `Output.recent` returns it."""

    def __init__(self) -> None:
        self.recent = (0, b"", 5.0)

    def write(self, text: str | bytes) -> None:
        data = text if isinstance(text, bytes) else text.encode()
        self.recent = (self.recent[0] + len(data), (self.recent[1] + data)[-TAIL_BYTES:], self.recent[2] + 1)


def scanned(*texts: str, pattern: str = "", is_mirrored: bool = False) -> dict[str, float]:
    """Return the values after all texts, each of which is scanned by itself."""
    stream = Stream()
    progress = OutputProgress([lambda: stream.recent], pattern, is_mirrored=is_mirrored)
    values: dict[str, float] = {}
    for text in texts:
        stream.write(text)
        values.update(progress.scan())
    values.pop("_time", None)
    values.pop("first_step", None)
    return values


BACK = "\b" * 90 + "\r"
K2 = " 6/70 [=>............................] - ETA: 12s - loss: 0.6860 - accuracy: 0.7995"
K2_END = "70/70 [==============================] - 2s 13ms/step - loss: 3.2400e-04 - accuracy: 0.9967 - val_loss: 0.4\n"
K3 = (
    "\x1b[1m56/70\x1b[0m \x1b[32m━━━━━━━━\x1b[0m\x1b[37m━━\x1b[0m \x1b[1m1:05\x1b[0m 16ms/step"
    " - accuracy: 0.98 - loss: 0.0331"
)
LOST = "x" * 2 * TAIL_BYTES + "\n"


def table() -> Iterator[tuple[str, int, list[str], str]]:
    """Yield format, number, the lines so far, and the values of the last, of each row."""
    title, lines = "", list[str]()
    for number, row in enumerate(TABLE.read_text().splitlines(), 1):
        if row.startswith("# "):
            title = row.removeprefix("# ")
        elif not row:
            lines = []
        elif lines and row.startswith("=> ") and lines[-1]:
            yield title, number, list(lines), row.removeprefix("=> ")
        else:
            lines.append(re.sub(r"\\(t|r|x1b)", lambda match: ESCAPES[match[1]], row))


TABLE = Path(__file__).with_name("lines_of_programs.txt")
ESCAPES = {"t": "\t", "r": "\r", "x1b": "\x1b"}


@pytest.mark.parametrize(("title", "number", "lines", "values"), list(table()))
def test_lines_of_programs_are_read(title: str, number: int, lines: list[str], values: str) -> None:
    """Each line of the table, after those of the same program before it."""
    expected = {} if values == "nothing" else {name: float(text) for name, text in map(str.split, values.split(", "))}
    stream = Stream()
    progress, scans = OutputProgress([lambda: stream.recent]), [dict[str, float]()]
    for line in lines:
        stream.write(line if line.endswith("\r") else f"{line}\n")
        scans.append(progress.scan())
    for name in ("_time", "first_step", "nan_since"):
        scans[-1].pop(name, None)
    assert str(sorted(expected.items())) == str(sorted((name, float(v)) for name, v in scans[-1].items())), number


def test_table_has_many_formats() -> None:
    rows = list(table())
    assert (True, True) == (len(rows) >= 200, len({title for title, *_ in rows}) >= 12)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["Epoch 1/2\n" + K2_END + "Epoch 2/2\n      9/Unknown 3s 1s/step - loss: 0.3\r"], {"step": 79, "loss": 0.3}),
        ([K2 + BACK + K2_END], {"step": 70, "total": 70, "loss": 3.24e-4}),
        (["epoch 1/2 step 10/10\nepoch 2/2 step 1/10\n"], {"step": 11, "total": 20}),
        (["epoch 1/3 step 1/500\nepoch 2/3 step 300/500\nepoch 3/3 step 9/500\n"], {"step": 1009, "total": 1500}),
        (["epoch 0/2 step 9/20\nepoch 1/2 step 11/20\n"], {"step": 11, "total": 20}),
        (["Epoch 2/50\nstep 3/50 loss 0.5\nstep 200 loss 0.4\n"], {"step": 53, "total": 2500, "loss": 0.4}),
        (["step 200 loss 0.4\n", "step 3/50 loss 0.5\n"], {"step": 3, "total": 50, "loss": 0.5}),
        (["step 200/50\n"], {"step": 200}),
        (["step 7 loss 0.5"], {}),
        (["step 7 loss 0.5", ""], {"step": 7, "loss": 0.5}),
        (["step 1", "2/500\nstep 1"], {"step": 12, "total": 500}),
        ([LOST, "step 7/9\n"], {"step": 7, "total": 9}),
        (["step 1/9\n" + LOST + "3 step 2/9\n"], {"step": 2}),
    ],
)
def test_values_of_several_lines_are_joined(texts: list[str], expected: dict[str, float]) -> None:
    values = scanned(*texts)
    assert str(expected) == str({name: values.get(name) for name in expected})
    assert {} == expected or values.keys() <= {*expected, "epoch", "epochs", "accuracy", "val_loss", "total", "loss"}


def test_bar_of_evaluation_is_ignored() -> None:
    """`evaluate` after `fit` has no heading, and other batches."""
    bar = "10/10 [====] - 0s 2ms/step - loss: 9.9 - accuracy: 0.1\n"
    assert (140, 0.5) == itemgetter(scanned("Epoch 2/2\n70/70 - 1s - loss: 0.5\n", bar))
    assert (70, 3.24e-4) == itemgetter(scanned(K2 + BACK + K2_END, bar))


def itemgetter(values: dict[str, float]) -> tuple[Any, Any]:
    return values.get("step"), values.get("loss")


def test_only_last_bar_counts_with_replicas() -> None:
    """Keras 2 adds up all others, also the first of two with all batches."""
    summed = "70/70 [====] - ETA: 0s - loss: 0.0648 - accuracy: 1.9934"
    assert {"step": 70, "total": 140, "epoch": 1, "epochs": 2} == scanned(
        "Epoch 1/2\n" + K2 + BACK + summed + BACK, is_mirrored=True
    )
    assert {"step": 70, "total": 140, "epoch": 1, "epochs": 2} == scanned(
        "Epoch 1/2\n" + summed + "\n", is_mirrored=True
    )
    assert 3.24e-4 == scanned("Epoch 1/2\n" + summed + "\n", K2_END, is_mirrored=True)["loss"]
    assert 0.2 == scanned("step 3 loss 0.2\n", is_mirrored=True)["loss"]


def test_values_have_the_time_of_their_output() -> None:
    """Rather than that of the scan, which is later."""
    stream = Stream()
    progress = OutputProgress([lambda: stream.recent])
    stream.write("step 1/9\n")
    assert {"step": 1, "total": 9, "first_step": 1, "_time": 6.0} == progress.scan()
    assert {} == progress.scan()


def test_first_step_of_a_scan_is_kept() -> None:
    """A relaunched program may print many steps in a second."""
    stream = Stream()
    progress = OutputProgress([lambda: stream.recent])
    stream.write("step 5/900\n" + "step 300/900\n")
    assert (5, 300) == ((values := progress.scan())["first_step"], values["step"])


def test_pattern_replaces_known_lines() -> None:
    pattern = r"it (?P<step>[\d,]+) of (?P<total>\d+)(?: l=(?P<loss>\S+))?(?: t=(?P<temperature>\S+))?"
    assert {} == scanned("step 3/7 loss 0.2\n", pattern=pattern)
    assert {"step": 1200, "total": 9000} == scanned("it 1,200 of 9000 l=low\n", pattern=pattern)
    assert {"step": 3, "total": 7, "loss": 0.5, "temperature": 1e-3} == scanned(
        "it 3 of 7 l=0.5 t=1e-3\n", pattern=pattern
    )


def test_slow_pattern_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would stop the executor's other threads."""
    monkeypatch.setattr(output_lines, "_PATTERN_TIME", -1.0)
    assert {"step": 1} == scanned("it 1\n", "it 2\n", pattern=r"it (?P<step>\d+)")


@pytest.mark.parametrize("line", ["1" * MAX_LINE, "." * MAX_LINE], ids="1.")
@pytest.mark.parametrize("end", [r"(?P<a>\d+)x", r"(?P<a>.+)-", r".*\d(?P<a>\d*)"])
def test_slowest_accepted_pattern_takes_milliseconds(line: str, end: str) -> None:
    """It holds the lock of the interpreter, which heartbeats need."""
    pattern = r"(?:.|\d)(?:.|\d)(?:.|\d)(?:.)?" + end
    parse_line_pattern(pattern)
    before = time.process_time()
    scanned(line + "\n", pattern=pattern)
    assert time.process_time() - before < 0.5


HOSTILE = [
    "a" * 10**6,
    "1" * 10**6,
    " " * 10**6,
    "step " * 10**5,
    "loss: " * 10**5,
    "epoch 1 step 1 loss 1 " * 10**4,
    "a." * 10**5,
    "\x1b[" + "1;" * 10**5,
    "step" + " " * 10**5 + "1",
    "1/1 [" + "=" * 10**5,
    "a=" + "1." * 10**5,
    "1%|" * 10**5,
    "{'loss': " + "'epoch': 1" * 10**5,
]


@pytest.mark.parametrize("line", HOSTILE, ids=lambda line: line[:8].strip())
def test_any_line_is_parsed_in_linear_time(line: str) -> None:
    """Of which only 4 KB are parsed."""
    before = time.process_time()
    scanned(line + "\n", line + "\r", line, "")
    assert time.process_time() - before < 1.0


@given(st.lists(st.binary(max_size=200) | st.sampled_from([b"Epoch 1/2\n", K3.encode(), b"\r", b"\n"]), max_size=8))
def test_any_bytes_are_parsed(chunks: list[bytes]) -> None:
    stream = Stream()
    progress = OutputProgress([lambda: stream.recent])
    for chunk in chunks:
        stream.write(chunk)
        progress.scan()
    assert all(len(lines._rest) <= MAX_LINE for lines in progress._streams)


# With real processes.


def test_printed_steps_reach_the_scheduler(executor: Any) -> None:
    """Also the last line, which is printed just before the exit."""
    executor.launch("echo 'step 1/3 loss 0.5'; echo 'step 3/3 loss 0.25' >&2", progress_from_output=True)
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    last = executor.messages[-1]
    assert (3, 3, 0.25, "output") == (last["step"], last["total"], last["loss"], last["source"])


def test_printed_steps_can_be_ignored(executor: Any) -> None:
    executor.launch("echo 'step 1/3 loss 0.5'")
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert [] == executor.messages


def test_first_printed_step_is_reported_within_two_seconds(executor: Any) -> None:
    """While the program continues."""
    program = "date +%s.%N > printed; echo 'global step 120'; exec sleep 60"
    executor.launch_running(program, progress_from_output=True)
    message = executor.await_message()
    printed = float(executor.await_file("printed"))
    assert (120, True) == (message["step"], message["time"] < printed + 2)
