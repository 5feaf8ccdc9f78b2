"""Static files of the web page, as routes; the page reads its data from the API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import PurePath

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from tf_executor.contract.states import TONES, URGENT, TaskState

#: Module that is made from the contract.
STATES = "states.js"
#: Relative path of the files, because on DC/OS the page is at /service/NAME/.
FOLDER = "page"
#: Media types by file suffix.
KINDS: Mapping[str, str] = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
#: Allow own files only, no inline scripts; Trusted Types block markup from texts.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types"
)
#: Revalidated each time, so that the page matches the scheduler's version.
_HEADERS = {"content-security-policy": _POLICY, "cache-control": "no-cache"}


def pages(home: str = "index.html") -> tuple[Route, ...]:
    """Return the routes; `/` is the file `home`, and `/v1` redirects a browser to it."""
    api = (Route(path, _lead_to_page, methods=["GET"]) for path in ("/v1", "/v1/"))
    return (*(_route(name, content, home) for name, content in sorted(_files().items())), *api)


async def _lead_to_page(request: Request) -> Response:
    """Redirect browsers to the page, by a relative URL: a proxy may add a prefix."""
    if "text/html" not in request.headers.get("accept", ""):
        raise HTTPException(404)
    return RedirectResponse("../" if request.url.path.endswith("/") else "./")


def _files() -> dict[str, bytes]:
    """Read the static files, which may be in a zip."""
    files = resources.files(__package__).joinpath("static").iterdir()
    static = {item.name: item.read_bytes() for item in files if PurePath(item.name).suffix in KINDS}
    return {**static, STATES: _states().encode()}


def _states() -> str:
    """Return a JavaScript module with tone and label of all states, and ended states."""
    content = {
        "STATES": {word: {"tone": tone, "label": word.lower().replace("_", " ")} for word, tone in TONES.items()},
        "ENDED": [state.word for state in TaskState if state.has_ended],
        "URGENT": URGENT,
    }
    return "".join(f"export const {name} = {json.dumps(value)};\n" for name, value in content.items())


def _route(name: str, content: bytes, home: str) -> Route:
    async def handle(_request: Request) -> Response:
        return Response(content, headers=_HEADERS, media_type=KINDS[PurePath(name).suffix])

    return Route("/" if name == home else f"/{FOLDER}/{name}", handle, methods=["GET"], name=name)
