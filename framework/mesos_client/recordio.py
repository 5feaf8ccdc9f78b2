r"""RecordIO, the framing of Mesos' event streams: `<length in decimal>\n<length bytes>`, repeated.

Source: docs/scheduler-http-api.md of Apache Mesos, "RecordIO response format". Pure: bytes in, records out.
"""

from __future__ import annotations

#: Longest length line that is believed: 10 digits are 9 GB, far above any event.
MAX_DIGITS = 10


class RecordError(ValueError):
    """The bytes are not RecordIO."""


class Decoder:
    """Incremental decoder. Its time is linear in the bytes fed, however they are cut."""

    def __init__(self) -> None:
        self._length_line = b""
        self._record = bytearray()
        self._missing = -1  # bytes still wanted of the current record; -1 while reading a length

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the records that `chunk` completes. Raise RecordError on garbage.

        Then the decoder is of no more use.
        """
        records: list[bytes] = []
        position = 0
        while position < len(chunk):
            read = self._read_length if self._missing < 0 else self._read_body
            position = read(chunk, position)
            if self._missing == 0:
                records.append(bytes(self._record))
                self._record, self._missing = bytearray(), -1
        return records

    @property
    def is_between_records(self) -> bool:
        """Whether the stream may end here without a record being cut."""
        return self._missing < 0 and not self._length_line

    def _read_length(self, chunk: bytes, start: int) -> int:
        # One byte more than is allowed is enough to see that a line is too long.
        end = chunk.find(b"\n", start, start + MAX_DIGITS + 1)
        stop = end if end >= 0 else min(len(chunk), start + MAX_DIGITS + 1)
        self._length_line += chunk[start:stop]
        line = self._length_line
        if len(line) > MAX_DIGITS or (line and not line.isdigit()) or (end >= 0 and not line):
            raise RecordError(f"not a record length: {line[:20]!r}")
        if end < 0:
            return stop
        self._length_line, self._missing = b"", int(line)
        return end + 1

    def _read_body(self, chunk: bytes, start: int) -> int:
        stop = min(len(chunk), start + self._missing)
        self._record += chunk[start:stop]
        self._missing -= stop - start
        return stop
