"""Stand-in for http-parser 0.9.0, which Python 3.11 and newer cannot compile.

Only the tests that compare the drivers with unmodified pymesos make a parser.
"""

from __future__ import annotations

from typing import Any

import httptools


class HttpParser:
    """Incremental parser of one HTTP response: the methods that pymesos 0.3.15 calls.

    Header names are in title case (`Mesos-Stream-Id`), as in the original.
    """

    def __init__(self) -> None:
        self._parser: Any = httptools.HttpResponseParser(self)
        self._error: Any = httptools.HttpParserError
        self._errno = 0
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._headers_complete = False
        self._message_complete = False

    # Called by httptools.

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").title()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._headers_complete = True

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        self._message_complete = True

    # Called by pymesos.

    def execute(self, data: bytes, length: int) -> int:
        """Parse `length` bytes; return the parsed number, smaller after a syntax error."""
        try:
            self._parser.feed_data(bytes(data[:length]))
        except self._error:
            self._errno = 1
            return 0
        return length

    def get_errno(self) -> int:
        """0, or 1 after a syntax error."""
        return self._errno

    def is_headers_complete(self) -> bool:
        return self._headers_complete

    def get_status_code(self) -> int:
        status: int = self._parser.get_status_code()
        return status

    def get_headers(self) -> dict[str, str]:
        return self._headers

    def is_chunked(self) -> bool:
        return self._headers.get("Transfer-Encoding", "").lower() == "chunked"

    def is_partial_body(self) -> bool:
        """Whether body bytes are waiting for `recv_body`."""
        return bool(self._body)

    def recv_body(self) -> bytes:
        """The body bytes since the last call, without chunk framing."""
        data, self._body = b"".join(self._body), []
        return data

    def is_message_complete(self) -> bool:
        return self._message_complete
