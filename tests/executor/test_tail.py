from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_executor.contract.reports import EndReport
from tf_executor.process.output import STDERR_BYTES, error_of, excerpt, output_excerpt, redact


def test_excerpt_starts_with_stderr() -> None:
    assert "; stderr: a | b; stdout: c" == output_excerpt(b"a\nb\n", b"c\n", [], 4096)
    assert ["; stdout: c", ""] == [output_excerpt(b"", b"c", [], 4096), output_excerpt(b"\n \n", b"", [], 4096)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"epoch 1\repoch 2\repoch 3\n", "epoch 3"),
        (b"\x1b[31mred\x1b[0m \x1b]0;title\x07text\n", "red text"),
        (b"windows\r\nlines\r\n", "windows | lines"),
        (b"bell\x07 \x00nul\n\n\nend", "bell nul | end"),
        (b"broken \xff\n", "broken �"),
        (b"    x = 1 / 0\n        ~~^~~\nZeroDivisionError\n", "x = 1 / 0 | ZeroDivisionError"),
        ("größer ≥ 1\n".encode(), "größer ≥ 1"),
    ],
)
def test_excerpt_reads_like_terminal(data: bytes, expected: str) -> None:
    assert expected == excerpt(data, [], 100, False)


def test_long_excerpt_keeps_end() -> None:
    assert "...the end" == excerpt(b"a long beginning and then the end", [], 10, False)


def test_excerpt_begins_with_complete_line() -> None:
    assert "...second | third" == excerpt(b"the first\nsecond\nthird\n", [], 20, False)
    assert "...end of a long line | x" == excerpt(b"the end of a long line\nx\n", [], 25, False)


@given(data=st.binary(max_size=3000), size=st.integers(3, 400))
def test_excerpt_is_bounded_single_line(data: bytes, size: int) -> None:
    text = excerpt(data, [], size, False)
    assert len(text.encode()) <= size
    assert not set(text) & set("\n\r\0\x1b")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("key=abcd1234 and abcd1234", "key=*** and ***"),
        ("-----BEGIN-----", "***"),
        ("of line-one only", "of *** only"),
        ("short ab stays", "short ab stays"),
    ],
)
def test_excerpt_redacts_secrets(text: str, expected: str) -> None:
    """Complete, and line by line; very short secrets would hide everything."""
    assert expected == redact(text, ["-----BEGIN-----\nline-one\nab", "abcd1234"])


def test_longer_secret_is_redacted_first() -> None:
    """Otherwise its rest would be shown."""
    assert "; stderr: x=*** y=***" == output_excerpt(b"x=abcd y=abcd-efgh", b"", ["abcd", "abcd-efgh"], 4096)


@given(cut=st.integers(0, 60), newline=st.booleans())
def test_truncated_secret_is_not_shown(cut: int, newline: bool) -> None:
    """The kept bytes may begin inside a secret."""
    secret = "0123456789abcdefghij"
    text = ("x" * 20 + secret + ("\n" if newline else "") + "y" * 20)[cut:]
    message = output_excerpt(text.encode(), b"", [secret], len(text))
    assert not [part for part in (secret[n : n + 4] for n in range(17)) if part in message]


def test_stderr_limit_fits_traceback_line() -> None:
    assert 300 <= STDERR_BYTES <= 600


HEADER = "Traceback (most recent call last):\n"
OF_TENSORFLOW = """  File "/usr/lib/python3/dist-packages/tensorflow/execute.py", line 60, in f
    raise x
  File "/opt/conda/lib/python3.11/runpy.py", line 9, in g
  File "<frozen importlib._bootstrap>", line 7, in h
"""
TRAIN = '  File "/box/train.py", line 3, in <module>\n    import nope\n'
DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"
GRAPH = 'tf.InvalidArgumentError: Graph execution error:\n\n  File "/box/a.py", line 7\nIncompatible shapes\n'
SYNTAX = '  File "train.py", line 2\n    x = = 1\n        ^\nSyntaxError: invalid\n'
WRONG_FLAG = "train.py: error: unrecognized arguments: -x"
VALUE_ERROR = HEADER + '  File "/other/x.py", line 1, in <module>\nValueError: x\n'


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        (HEADER + TRAIN + "ModuleNotFoundError: nope\n", "ModuleNotFoundError: nope (train.py line 3)"),
        (HEADER + TRAIN + OF_TENSORFLOW + "KeyError: 1\n", "KeyError: 1 (train.py line 3)"),
        (HEADER + OF_TENSORFLOW + "KeyError: 1\n", "KeyError: 1"),
        (VALUE_ERROR + DURING + HEADER + TRAIN + "E\n", "E (train.py line 3)"),
        (
            HEADER + TRAIN + GRAPH + "2026-01-02 03:04:05.6: W ignored\n",
            "tf.InvalidArgumentError: Graph execution error: ... Incompatible shapes (train.py line 3)",
        ),
        ("a log\n" + SYNTAX, "SyntaxError: invalid (train.py line 2)"),
        (VALUE_ERROR + "Exception ignored in: <x>\n" + HEADER + TRAIN + "E\n", "ValueError: x (/other/x.py line 1)"),
        ("usage: train.py\n" + WRONG_FLAG, WRONG_FLAG),
        ("\n \n", ""),
        ("", ""),
        (HEADER, HEADER.strip()),
    ],
)
def test_error_is_exception_and_place_in_program(stderr: str, expected: str) -> None:
    """People see it without the log, and the scheduler compares it with former ends."""
    assert expected == error_of(stderr.encode(), [], "/box")


def test_error_has_no_secrets() -> None:
    assert "E: *** (train.py line 3)" == error_of((HEADER + TRAIN + "E: abcd\n").encode(), ["abcd"], "/box/")


@given(data=st.binary(max_size=3000) | st.text(max_size=3000).map(str.encode), frames=st.booleans())
def test_error_fits_report(data: bytes, frames: bool) -> None:
    text = error_of((HEADER + TRAIN).encode() + data if frames else data, [], "/box")
    assert text == (EndReport.decode(EndReport(error=text).encode()).error or "")
