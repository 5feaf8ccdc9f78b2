"""The parser that tests give to unmodified pymesos."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from wire.http_parser import HttpParser

ANSWER = (
    b"HTTP/1.1 200 OK\r\nmesos-stream-id: s-1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
)


@given(st.lists(st.integers(0, len(ANSWER)), max_size=20))
def test_any_cutting_gives_the_same_answer(places: list[int]) -> None:
    """Status, headers and body do not depend on how the bytes come."""
    parser, body = HttpParser(), b""
    bounds = sorted({0, len(ANSWER), *places})
    for start, stop in pairwise(bounds):
        piece = ANSWER[start:stop]
        assert len(piece) == parser.execute(piece, len(piece))
        if parser.is_partial_body():
            body += parser.recv_body()
    assert parser.is_headers_complete()
    assert parser.is_message_complete()
    assert parser.is_chunked()
    assert (200, "s-1") == (parser.get_status_code(), parser.get_headers()["Mesos-Stream-Id"])
    assert body == b"hello world"
    assert parser.recv_body() == b""


def test_garbage_is_an_error_number() -> None:
    """As with the original: fewer bytes are taken, and there is an errno."""
    parser = HttpParser()
    assert parser.execute(b"no http at all\r\n", 16) != 16
    assert parser.get_errno() != 0
