"""Client for an ASGI app without a network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message


@dataclass(slots=True)
class Reply:
    """Complete answer."""

    code: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes = b""

    @property
    def text(self) -> str:
        return self.content.decode()

    @property
    def body(self) -> Any:
        return json.loads(self.content)


async def ask_async(
    app: ASGIApp,
    method: str,
    path: str,
    headers: dict[str, str],
    parts: Iterable[bytes],
    peer: str | None,
    client: str = "10.1.2.3",
) -> Reply:
    reply, waiting = Reply(), list(parts)
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), text.encode()) for name, text in {"Host": "localhost", **headers}.items()],
        "client": (client, 4711),
        "server": ("localhost", 80),
        "state": {} if peer is None else {"peer": peer},
    }

    async def receive() -> Message:
        if not waiting:
            await asyncio.Event().wait()  # the client sends nothing more and stays connected
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            reply.code = message["status"]
            reply.headers = {name.decode(): text.decode() for name, text in message["headers"]}
        reply.content += message.get("body", b"")

    await app(scope, receive, send)
    return reply


def ask(
    app: ASGIApp,
    path: str,
    method: str = "GET",
    *,
    headers: dict[str, str] | None = None,
    body: bytes = b"",
    parts: Iterable[bytes] = (),
    peer: str | None = None,
    client: str = "10.1.2.3",
) -> Reply:
    """Send a request; `parts`: chunked body, `peer`: client certificate's common name."""
    return asyncio.run(ask_async(app, method, path, headers or {}, tuple(parts) or (body,), peer, client))
