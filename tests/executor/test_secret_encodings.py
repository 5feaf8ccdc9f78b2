"""Encodings of secrets in program output."""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tf_executor.process.last_output import redact
from tf_executor.secrets.encodings import encodings_of

VALUE = 'CanarySEC-7731/ab+cd ef"q\\z'
SHOWN: dict[str, Callable[[str], str]] = {
    "plain": str,
    "quote": urllib.parse.quote,
    "quote, all": lambda text: urllib.parse.quote(text, safe=""),
    "quote_plus": urllib.parse.quote_plus,
    "lower case": lambda text: re.sub("%..", lambda match: match[0].lower(), urllib.parse.quote(text, safe="")),
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
    """Return the length of the longest part of the value in the text."""
    parts = (value[at : at + size] for size in range(1, len(value) + 1) for at in range(len(value) - size + 1))
    return max((len(part) for part in parts if part in text), default=0)


@pytest.mark.parametrize("shape", SHOWN)
@pytest.mark.parametrize("end", ["", "\n"])
def test_encodings_cover_printed_forms(shape: str, end: str) -> None:
    secret = 4 * VALUE if shape == "mail" else VALUE
    printed = SHOWN[shape](VALUE)

    hidden = redact(f"before {printed} after", [*encodings_of(secret.encode() + end.encode())])

    assert "***" in hidden
    assert len(hidden) < len("before *** after") + 17
    assert shared(hidden, printed) < 10


@given(st.binary(min_size=12, max_size=60), st.binary(max_size=5), st.binary(max_size=5))
@settings(max_examples=50)
def test_base64_encoding_matches_inside_other_data(value: bytes, before: bytes, after: bytes) -> None:
    encoded = base64.b64encode(before + value + after).decode()

    assert any(form in encoded for form in encodings_of(value))


def test_empty_value_has_no_encodings() -> None:
    assert [] == [*encodings_of(b"")]
    assert all(encodings_of(b"\n"))
