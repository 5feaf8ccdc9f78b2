"""The API's port is taken at once, its web server is loaded later."""

import http.client
import threading
import time

import pytest
from starlette.responses import PlainTextResponse

from tf_scheduler.api import late
from tf_scheduler.api.late import LateServer
from tf_scheduler.api.listening import listen
from tf_scheduler.api.server import ApiServer

PATIENCE = 60


@pytest.fixture
def listener():
    with listen("127.0.0.1", 0) as found:
        yield found


def ask(listener):
    connection = http.client.HTTPConnection("127.0.0.1", listener.getsockname()[1], timeout=PATIENCE)
    connection.request("GET", "/")
    return connection


def serving(listener, made):
    def make():
        made.set()
        return ApiServer(PlainTextResponse("here"), "127.0.0.1", 0, listener=listener)

    return make


def test_who_asks_early_is_answered_when_it_is_due(listener, monkeypatch):
    """Not before."""
    monkeypatch.setattr(late, "LATEST", PATIENCE)
    made, due = threading.Event(), threading.Event()

    with LateServer(listener, serving(listener, made), due, lambda: None):
        connection = ask(listener)
        assert not made.is_set()
        due.set()
        assert b"here" == connection.getresponse().read()
        connection.close()


def test_nobody_waits_for_long(listener, monkeypatch):
    """Where nothing is launched, it is due all the same."""
    monkeypatch.setattr(late, "LATEST", 0.01)

    with LateServer(listener, serving(listener, threading.Event()), threading.Event(), lambda: None):
        connection = ask(listener)
        assert b"here" == connection.getresponse().read()
        connection.close()


def test_what_nobody_asks_for_is_not_loaded(listener):
    """However long it is due."""
    made, due = threading.Event(), threading.Event()
    due.set()

    with LateServer(listener, serving(listener, made), due, lambda: None):
        assert not made.wait(0.1)


def test_what_ends_before_loads_nothing(listener, monkeypatch):
    """And ends at once."""
    monkeypatch.setattr(late, "LATEST", PATIENCE)
    made, begun = threading.Event(), time.monotonic()

    with LateServer(listener, serving(listener, made), threading.Event(), lambda: None):
        pass

    assert not made.is_set()
    assert time.monotonic() < begun + PATIENCE


def test_a_server_that_cannot_be_made_ends_the_scheduler(listener):
    """It is told at once, and raised at the end."""
    due, told = threading.Event(), threading.Event()
    due.set()

    def make():
        raise ValueError("no server")

    connection = ask(listener)
    with pytest.raises(ValueError, match="no server"), LateServer(listener, make, due, told.set):
        assert told.wait(PATIENCE)
    connection.close()
