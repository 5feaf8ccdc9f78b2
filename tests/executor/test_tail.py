from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_executor.tail import STDERR_BYTES, excerpt, last_words, mask


def test_both_streams_are_told_stderr_first() -> None:
    """An empty one is not mentioned."""
    assert "; stderr: a | b; stdout: c" == last_words(b"a\nb\n", b"c\n", [], 4096)
    assert ["; stdout: c", ""] == [last_words(b"", b"c", [], 4096), last_words(b"\n \n", b"", [], 4096)]


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
def test_it_reads_as_on_a_terminal(data: bytes, expected: str) -> None:
    """Progress bars, colours, control characters, broken text."""
    assert expected == excerpt(data, [], 100, False)


def test_a_long_text_keeps_its_end() -> None:
    """And says that something is missing."""
    assert "...the end" == excerpt(b"a long beginning and then the end", [], 10, False)


def test_it_begins_with_a_whole_line_where_it_can() -> None:
    """But not at the cost of half of it."""
    assert "...second | third" == excerpt(b"the first\nsecond\nthird\n", [], 20, False)
    assert "...end of a long line | x" == excerpt(b"the end of a long line\nx\n", [], 25, False)


@given(data=st.binary(max_size=3000), size=st.integers(3, 400))
def test_it_is_bounded_and_one_line(data: bytes, size: int) -> None:
    """Whatever comes."""
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
def test_secrets_are_masked(text: str, expected: str) -> None:
    """Whole, and line by line where they have several; very short ones would mask everything."""
    assert expected == mask(text, ["-----BEGIN-----\nline-one\nab", "abcd1234"])


def test_the_longer_of_two_secrets_wins() -> None:
    """Else its rest would be shown."""
    assert "; stderr: x=*** y=***" == last_words(b"x=abcd y=abcd-efgh", b"", ["abcd", "abcd-efgh"], 4096)


@given(cut=st.integers(0, 60), newline=st.booleans())
def test_a_secret_that_was_cut_in_two_is_not_shown(cut: int, newline: bool) -> None:
    """The kept bytes may begin in its middle."""
    secret = "0123456789abcdefghij"
    text = ("x" * 20 + secret + ("\n" if newline else "") + "y" * 20)[cut:]
    shown = last_words(text.encode(), b"", [secret], len(text))
    assert not [part for part in (secret[n : n + 4] for n in range(17)) if part in shown]


def test_the_room_for_stderr_is_enough_for_the_last_line_of_a_traceback() -> None:
    """A few hundred bytes."""
    assert 300 <= STDERR_BYTES <= 600
