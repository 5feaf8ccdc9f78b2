"""Server-sent events over real HTTP."""

import http.client
import json
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_client import ask
from builders import a_spec, a_status, with_fields
from kit.api import a_record, registered
from tf_executor.contract.states import TaskState
from tf_scheduler.api.app import create_app
from tf_scheduler.api.http.backend import Backend
from tf_scheduler.api.http.server import ApiServer
from tf_scheduler.api.routes import streams, task_files
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.errors import FileError
from tf_scheduler.interfaces import FileChunk
from tf_scheduler.model.task import EarlierLaunch
from tf_scheduler.store.journal import EventJournal

PATIENCE = 20


class Service:
    """A task with a file, which grows by what the test writes."""

    def __init__(self) -> None:
        record = a_record(a_spec(), "chief-0")
        self.state = registered(tasks={record.name: record}, statuses={record.id: a_status(record.id)})
        self.files = {record.id: b""}
        self.journal = EventJournal(clock=lambda: 1.0)
        self.backend = Backend(lambda: Snapshot(self.state), journal=self.journal, files=self)

    def read(self, _state, record, _name, offset, length):
        if record.id not in self.files:
            raise FileError(404, "there is no such file")
        content = self.files[record.id]
        start = max(0, len(content) - length) if offset is None else min(offset, len(content))
        return FileChunk(start, content[start : start + length], len(content))

    def end(self, launch, state) -> None:
        statuses = {**self.state.stored.statuses, launch: a_status(launch, state)}
        self.state = with_fields(self.state, statuses=statuses)

    def launch_again(self) -> None:
        record = replace(self.state.stored.tasks["chief-0"], id="chief-0__2")
        self.state = with_fields(self.state, tasks={"chief-0": record})


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(task_files, "_POLL_INTERVAL", 0.01)
    return Service()


@pytest.fixture
def port(service):
    with ApiServer(create_app(service.backend), "127.0.0.1", 0) as server:
        yield server.port


@contextmanager
def listening(port, path, **headers):
    """An iterator of (id, kind, data); comments are ("", "", text)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        assert (200, "text/event-stream") == (answer.status, answer.headers.get_content_type())
        yield events(answer)
    finally:
        connection.close()


def events(answer):
    fields: dict[str, str] = {}
    for line in answer:
        name, _, text = line.decode().rstrip("\n").partition(": ")
        if name == "":
            if "event" in fields:
                yield fields.get("id", ""), fields["event"], json.loads(fields["data"])
            fields = {}
        fields[name] = text


def test_stream_sends_stored_and_new_events(service, port: int) -> None:
    service.journal.note("Tick", "before")

    with listening(port, "/v1/events?follow=true&after=0") as heard:
        mark = f"1-{service.journal.id}"
        assert (mark, "event", "before") == ((first := next(heard))[0], first[1], first[2]["message"])
        service.journal.note("Tick", "after")
        assert (2, "after") == ((second := next(heard))[2]["number"], second[2]["message"])


def test_stream_resumes_at_last_event_id(service, port: int) -> None:
    """A browser asks for a stream with the Accept header."""
    for number in range(3):
        service.journal.note("Tick", str(number))

    for last in ("2", f"2-{service.journal.id}"):
        with listening(port, "/v1/events?after=0", **{"Accept": "text/event-stream", "Last-Event-ID": last}) as heard:
            assert 3 == next(heard)[2]["number"]


@pytest.mark.parametrize(
    ("query", "last"),
    [("&after=2&journal=other", ""), ("&after=99999", ""), ("&after=2", "2-other"), ("&after=2", "99999"), ("", "x-y")],
)
def test_number_of_another_journal_starts_again(service, port: int, query: str, last: str) -> None:
    """A client of an earlier installation would otherwise wait forever."""
    for number in range(3):
        service.journal.note("Tick", str(number))

    with listening(port, f"/v1/events?follow=true{query}", **({"Last-Event-ID": last} if last else {})) as heard:
        service.journal.note("Tick", "3")
        assert (4 if last == "x-y" else 1) == next(heard)[2]["number"]


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ("?after=2", [3]),
        ("?after=3", []),
        ("?after=99999", [1, 2, 3]),
        ("?after=2&journal=other", [1, 2, 3]),
        ("?after=2&journal={}", [3]),
        ("?limit=2", [2, 3]),
    ],
)
def test_next_number_is_at_most_the_last(service, query: str, numbers) -> None:
    for number in range(3):
        service.journal.note("Tick", str(number))

    page = ask(create_app(service.backend), f"/v1/events{query.format(service.journal.id)}").body

    assert numbers == [event["number"] for event in page["events"]]
    assert (3, 3, service.journal.id) == (page["last"], page["next"], page["journal"])


def test_stream_sends_keep_alive(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies close silent connections."""
    monkeypatch.setattr(streams, "KEEP_ALIVE", 0.01)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("GET", "/v1/events?follow=true")

    lines = [line for line, _ in zip(connection.getresponse(), range(4), strict=False)]
    connection.close()

    assert [b": listening\n", b"\n", b": nothing new\n", b"\n"] == lines


def test_followed_file_continues_after_relaunch(service, port: int) -> None:
    """Characters are complete, however the reads divide them."""
    service.files["chief-0__1"] = "step é".encode()[:-1]
    with listening(port, "/v1/tasks/chief-0/logs?follow=true") as heard:
        assert ("5", "log", "step ") == ((first := next(heard))[0], first[1], first[2]["data"])
        service.files["chief-0__1"] = "step é!".encode()
        assert "é!" == next(heard)[2]["data"]
        service.launch_again()
        service.files["chief-0__2"] = b"again"
        assert ("launch", {"id": "chief-0__2"}) == next(heard)[1:]
        assert "again" == next(heard)[2]["data"]
        service.end("chief-0__2", TaskState.FINISHED)
        assert ("end", {"state": "TASK_FINISHED"}) == next(heard)[1:]
        assert [] == list(heard)


@given(st.text(), st.integers(1, 9))
def test_pieces_of_a_file_join_to_the_text(text, length) -> None:
    """A length below one character's size returns it in parts, so reading continues."""
    content, offset, received = text.encode(), 0, ""
    while offset < len(content):
        piece = task_files.piece_body(FileChunk(offset, content[offset : offset + length], len(content)))
        assert piece["next"] > offset
        offset, received = piece["next"], received + piece["data"]

    assert text == received or length < 4


def test_incomplete_character_waits_for_the_rest() -> None:
    """Not in the file of an ended task."""
    half = FileChunk(3, "é".encode()[:1], 4)

    assert ("", 3) == tuple(task_files.piece_body(half, waits=True)[key] for key in ("data", "next"))
    assert ("\ufffd", 4) == tuple(task_files.piece_body(half)[key] for key in ("data", "next"))


def test_output_of_earlier_launch_is_read(service) -> None:
    """Its agent may be another."""
    service.files["chief-0__1"] = b"the first"
    first = service.state.stored.tasks["chief-0"]
    service.launch_again()
    earlier = (EarlierLaunch(first.id, first.agent_id, first.hostname, first.launched_at),)
    service.state = with_fields(
        service.state, tasks={"chief-0": replace(service.state.stored.tasks["chief-0"], restarts=1, earlier=earlier)}
    )
    app = create_app(service.backend)
    (task,) = (task for task in ask(app, "/v1/tasks").body["tasks"] if task["name"] == "chief-0")

    assert (1, [first.id]) == (task["restarts"], [item["id"] for item in task["earlier"]])
    answer = ask(app, f"/v1/tasks/chief-0/logs?launch={first.id}").body
    assert ("the first", first.id) == (answer["data"], answer["id"])
    assert 404 == ask(app, "/v1/tasks/chief-0/logs?launch=chief-0__2").code, "it has no file yet"
    unknown = ask(app, "/v1/tasks/chief-0/logs?launch=ps-0__1")
    assert (404, "unknown launch ps-0__1 of chief-0") == (unknown.code, unknown.text.partition(";")[0][-33:])


def test_missing_file_of_ended_task_ends_stream(service, port: int) -> None:
    service.end("chief-0__1", TaskState.FAILED)
    service.files.clear()

    with listening(port, "/v1/tasks/chief-0/logs?follow=true") as heard:
        _, kind, data = next(heard)
        assert ("error", 404, []) == (kind, data["error"]["status"], list(heard))


def test_closed_stream_releases_its_quota(service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams.EventStreams.__init__, "__defaults__", (1,))
    with ApiServer(create_app(service.backend), "127.0.0.1", 0) as server:
        with listening(server.port, "/v1/events?follow=true"):
            other = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
            other.request("GET", "/v1/events?follow=true")
            assert 503 == other.getresponse().status
            other.close()
        # The server notices when it next writes, at the latest.
        for _ in range(1000):
            service.journal.note("Tick", "somebody there?")
            again = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
            again.request("GET", "/v1/events?follow=true")
            code = again.getresponse().status
            again.close()
            if code == 200:
                break
        assert 200 == code


@pytest.mark.parametrize("file", ["..", "../x", "/etc/passwd", "a//b", "a/./b", "a%00b", "a%0Ab", ""])
def test_invalid_paths_are_not_sent_to_agents(port: int, file: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("GET", f"/v1/tasks/chief-0/logs?file={file}")
    assert 400 == connection.getresponse().status
    connection.close()
