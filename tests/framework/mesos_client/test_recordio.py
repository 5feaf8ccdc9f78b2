"""RecordIO: any cutting gives the same records, garbage gives a clear error."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesos_client.stream import RecordDecoder, RecordError

RECORDS = st.lists(st.binary(max_size=200), max_size=20)


def encoded(records: list[bytes]) -> bytes:
    return b"".join(b"%d\n%s" % (len(record), record) for record in records)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:stop] for start, stop in pairwise(bounds)]


@given(RECORDS, st.lists(st.integers(min_value=0), max_size=50))
def test_any_chunking_yields_the_same_records(records, places) -> None:
    """The written records are decoded in order, however the bytes are cut."""
    decoder = RecordDecoder()
    decoded = [record for chunk in cut(encoded(records), places) for record in decoder.feed(chunk)]
    assert records == decoded
    assert decoder.is_between_records


@given(RECORDS, st.binary(max_size=200))
def test_single_bytes_are_enough(records, last) -> None:
    """Fed byte by byte, a record is decoded with its last byte."""
    decoder = RecordDecoder()
    data = encoded([*records, last])
    for byte in data[:-1]:
        decoder.feed(bytes([byte]))
    if last:
        assert [last] == decoder.feed(data[-1:])


@given(st.binary(min_size=1, max_size=60))
def test_arbitrary_bytes_end_in_records_or_in_record_error(data) -> None:
    """No other exception, and no endless loop."""
    try:
        records = RecordDecoder().feed(data)
    except RecordError:
        return
    assert sum(len(record) for record in records) <= len(data)


@pytest.mark.parametrize(
    "garbage", [b"x", b"\n", b"-1\n", b" 1\n", b"1 \n", b"1\r\n", b"<html>", b"12345678901\n", b"9" * 11]
)
def test_garbage_is_named(garbage) -> None:
    """The error shows the beginning of an invalid length."""
    with pytest.raises(RecordError, match="not a record length"):
        RecordDecoder().feed(garbage)


@pytest.mark.parametrize("garbage", [b"12345678901\n", b"1x2\n"])
def test_garbage_is_detected_byte_by_byte(garbage) -> None:
    """A length line that comes in pieces is judged like a whole one."""
    decoder = RecordDecoder()
    with pytest.raises(RecordError):
        [decoder.feed(bytes([byte])) for byte in garbage]


@pytest.mark.parametrize("start", [b"5", b"5\n", b"5\nabcd"])
def test_unfinished_record_is_detected(start) -> None:
    """The end of the stream inside a record differs from one between records."""
    decoder = RecordDecoder()
    assert decoder.feed(start) == []
    assert not decoder.is_between_records


def test_decoding_is_linear() -> None:
    """Decoding a record in many pieces takes linear time: no copy for each piece."""
    size, piece = 1 << 24, b"x" * (1 << 10)
    decoder = RecordDecoder()
    decoder.feed(b"%d\n" % size)
    begin = time.process_time()
    records = [record for _ in range(size // len(piece)) for record in decoder.feed(piece)]
    assert [size] == [len(record) for record in records]
    assert time.process_time() - begin < 1.0
