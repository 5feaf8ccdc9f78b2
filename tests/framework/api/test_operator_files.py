"""The SDK's file uploads over HTTP: as a form, as its tools send them, as a body."""

import pytest

from asgi_client import ask
from kit.api import registered
from kit.memory_store import MemoryStore
from tf_scheduler.api.app import create_app
from tf_scheduler.api.http.auth import Policy
from tf_scheduler.api.http.backend import Backend
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.store.operator_files import OperatorFiles

PATH = "/v1/state/files/note"
FORM = {"Content-Type": "multipart/form-data; boundary=xyz"}
CONTENT = b"one\r\ntwo\n\xff\x00--xy"


def an_app(*, uninstalling=False, **options):
    store, state = MemoryStore("service"), registered()
    kept = OperatorFiles(store, store.load())
    return create_app(Backend(lambda: Snapshot(state, uninstalling), operator_files=kept), Policy(**options))


def form(name, content):
    head = f'--xyz\r\nContent-Disposition: form-data; name="{name}"; filename="x"\r\n\r\n'
    return head.encode() + content + b"\r\n--xyz--\r\n"


@pytest.mark.parametrize(("headers", "body"), [(FORM, form("file", CONTENT)), ({}, CONTENT)])
def test_file_is_stored_and_returned(headers, body: bytes) -> None:
    """Unchanged, and as text, so that a browser does not interpret it."""
    app = an_app()

    assert {"message": "Received cmd: store file note"} == ask(app, PATH, "PUT", headers=headers, body=body).body
    got = ask(app, PATH)
    assert (200, CONTENT, "nosniff") == (got.code, got.content, got.headers["x-content-type-options"])
    assert got.headers["content-type"].startswith("text/plain")
    assert ["note"] == ask(app, "/v1/state/files").body
    assert (404, "File none not found") == (
        ask(app, "/v1/state/files/none").code,
        ask(app, "/v1/state/files/none").text,
    )


def test_file_is_a_property() -> None:
    """As in the SDK."""
    app = an_app()
    ask(app, PATH, "PUT", body=b"one")

    assert ["file-note"] == ask(app, "/v1/state/properties").body
    assert "one" == ask(app, "/v1/state/properties/file-note").body
    assert 404 == ask(app, "/v1/state/properties/file-none").code


@pytest.mark.parametrize(
    ("path", "headers", "body"),
    [
        (PATH, {}, b"x" * 1025),
        (PATH, FORM, form("other", b"x")),
        (PATH, FORM, b"no form"),
        (PATH, {"Content-Type": "multipart/form-data"}, form("file", b"x")),
        ("/v1/state/files/..", {}, b"x"),
    ],
)
def test_invalid_upload_is_400(path: str, headers, body: bytes) -> None:
    app = an_app()

    assert 400 == ask(app, path, "PUT", headers=headers, body=body).code
    assert [] == ask(app, "/v1/state/files").body


def test_file_upload_needs_write_access() -> None:
    """Refused during an uninstall too, because it erases the state."""
    reader = {"Authorization": "Bearer r"}

    assert 403 == ask(an_app(read_token="r", write_token="w"), PATH, "PUT", headers=reader, body=b"x").code
    assert 409 == ask(an_app(uninstalling=True), PATH, "PUT", body=b"x").code
