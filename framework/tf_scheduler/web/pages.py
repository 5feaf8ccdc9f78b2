"""Routes of the page's files. They hold nothing of the service: the page asks the API for that, as any other client."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

#: Below it are the files that the page names: as a relative path, for behind DC/OS the page is at /service/NAME/.
FOLDER = "page"
#: Kind of file -> media type.
KINDS: Mapping[str, str] = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
#: Only our own files, no script in the page itself; a text that becomes markup is refused by the browser.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types"
)
#: Asked for again each time, so that a newer scheduler shows its own page.
_HEADERS = {"content-security-policy": _POLICY, "cache-control": "no-cache"}


def pages() -> tuple[Route, ...]:
    """`/` is the page."""
    return tuple(_route(name, content) for name, content in sorted(_files().items()))


def _files() -> dict[str, bytes]:
    """Name -> content; they may lie in a zip."""
    found = resources.files(__package__).joinpath("static").iterdir()
    return {item.name: item.read_bytes() for item in found if _kind(item.name) in KINDS}


def _route(name: str, content: bytes) -> Route:
    async def give(_request: Request) -> Response:
        return Response(content, headers=_HEADERS, media_type=KINDS[_kind(name)])

    return Route("/" if name == "index.html" else f"/{FOLDER}/{name}", give, methods=["GET"], name=name)


def _kind(name: str) -> str:
    return name[name.rfind(".") :]
