"""A value is found in whatever a program makes of it."""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tf_executor.forms import forms
from tf_executor.tail import mask

VALUE = 'CanarySEC-7731/ab+cd ef"q\\z'
SHOWN: dict[str, Callable[[str], str]] = {
    "plain": str,
    "quote": urllib.parse.quote,
    "quote, all": lambda text: urllib.parse.quote(text, safe=""),
    "quote_plus": urllib.parse.quote_plus,
    "lower case": lambda text: re.sub("%..", lambda found: found[0].lower(), urllib.parse.quote(text, safe="")),
    "repr": lambda text: repr({"ONE": text}),
    "bytes": lambda text: repr(text.encode()),
    "json": json.dumps,
    "hex": lambda text: text.encode().hex(),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 of a line": lambda text: base64.b64encode(text.encode() + b"\n").decode(),
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "Basic": lambda text: base64.b64encode(b"user:" + text.encode()).decode(),
    "Basic, another": lambda text: base64.b64encode(b"me:" + text.encode() + b"!").decode(),
    "mail": lambda text: base64.encodebytes(4 * text.encode()).decode(),
}


def shared(text: str, value: str) -> int:
    """Characters of the longest part of the value that stands in the text."""
    parts = (value[at : at + size] for size in range(1, len(value) + 1) for at in range(len(value) - size + 1))
    return max((len(part) for part in parts if part in text), default=0)


@pytest.mark.parametrize("shape", SHOWN)
@pytest.mark.parametrize("end", ["", "\n"])
def test_a_value_is_masked_in_the_forms_that_programs_print(shape: str, end: str) -> None:
    """Whether its file ends with a line end or not. At most a few characters at its edges are left of base64."""
    secret = 4 * VALUE if shape == "mail" else VALUE
    shown = SHOWN[shape](VALUE)

    hidden = mask(f"before {shown} after", [*forms(secret.encode() + end.encode())])

    assert "***" in hidden
    assert len(hidden) < len("before *** after") + 17
    assert shared(hidden, shown) < 10


@given(st.binary(min_size=12, max_size=60), st.binary(max_size=5), st.binary(max_size=5))
@settings(max_examples=50)
def test_in_base64_a_value_is_found_whatever_is_around_it(value: bytes, before: bytes, after: bytes) -> None:
    shown = base64.b64encode(before + value + after).decode()

    assert any(form in shown for form in forms(value))


def test_an_empty_value_has_no_forms() -> None:
    """Everything would be masked."""
    assert [] == [*forms(b"")]
    assert all(forms(b"\n"))
