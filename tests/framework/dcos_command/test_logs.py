"""Streams that are interrupted and resumed, and live output."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route

from dcos_command import logs
from dcos_command import service as commands
from dcos_command.client import ServiceClient
from dcos_command.command import CliProgram
from dcos_command.errors import UnreachableError
from dcos_command.main import root_group, run_command
from dcos_command.output import render_lines
from dcos_command.transport import ClusterConnection, ServerSentEvent
from kit.commands import processes
from simulation import send
from simulation.world import play
from tf_executor.contract.reports import Progress
from tf_scheduler.api.http.server import ApiServer
from tf_scheduler.model.events import ProgressReported
from tf_scheduler.model.state import JournalEntry

PATIENCE = 60


@pytest.fixture
def moody(monkeypatch: pytest.MonkeyPatch):
    """A service that sends `answers` in order, then 503; `asked`: requested offsets."""
    monkeypatch.setattr(logs, "_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(logs, "_MAX_RETRIES", 3)
    asked: list[Any] = []
    answers: list[Any] = []

    async def answer(request):
        asked.append(request.headers.get("last-event-id"))
        if not answers:
            return PlainTextResponse("busy", 503)
        return StreamingResponse(iter([answers.pop(0)]), media_type="text/event-stream")

    with ApiServer(Starlette(routes=[Route("/v1/events", answer)]), "127.0.0.1", 0) as server:
        service = ServiceClient(ClusterConnection(f"http://127.0.0.1:{server.port}"), "", direct=True)
        service_and = lambda: logs.follow_stream(service, "v1/events", ("end",))  # noqa: E731
        yield asked, answers, service_and


def test_interrupted_stream_resumes_after_last_event(moody) -> None:
    """The last complete event."""
    asked, answers, stream = moody
    answers += ["id: 1\ndata: a\n\nid: 2\ndata: ha", "id: 2\ndata: half\n\nevent: end\ndata: {}\n\n"]

    assert [ServerSentEvent("a", id="1"), ServerSentEvent("half", id="2"), ServerSentEvent("{}", "end", "2")] == list(
        stream()
    )
    assert [None, "1"] == asked


def test_followed_events_name_their_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reinstalled service counts from 1 again."""
    monkeypatch.setattr(logs, "_RETRY_SECONDS", 0.0)
    asked = []
    event = {"number": 8, "time": 1.0, "kind": "Subscribed", "task": None, "message": "", "warning": False}

    async def answer(request):
        if "follow" not in request.query_params:
            return JSONResponse({"events": [], "first": 0, "last": 6, "next": 7, "journal": "it"})
        asked.append(
            (request.query_params["after"], request.query_params["journal"], request.headers.get("last-event-id"))
        )
        return StreamingResponse(
            iter([f"id: 8-it\nevent: event\ndata: {json.dumps(event)}\n\n"]), media_type="text/event-stream"
        )

    with ApiServer(Starlette(routes=[Route("/v1/events", answer)]), "127.0.0.1", 0) as server:
        service = ServiceClient(ClusterConnection(f"http://127.0.0.1:{server.port}"), "", direct=True)
        events = logs.follow_events(service)
        assert [event, event] == [next(events), next(events)]
    assert [("7", "it", None), ("7", "it", "8-it")] == asked


def test_stream_without_answer_is_given_up(moody) -> None:
    """A restarted scheduler has a minute."""
    asked, answers, stream = moody
    answers += ["id: 1\ndata: a\n\n"]
    events = stream()

    assert "a" == next(events).data
    with pytest.raises(UnreachableError, match="stopped answering"):
        next(events)
    assert 3 == len(asked)


def test_first_request_without_answer_is_not_retried(moody) -> None:
    asked, _answers, stream = moody

    with pytest.raises(UnreachableError, match="no scheduler answers"):
        next(stream())
    assert 1 == len(asked)


@pytest.fixture
def program(api, tmp_path: Path):
    """Start `dcos-tensorflow ARGUMENTS` or dcos tensorflow; kill leftovers by id."""
    environment = {
        **os.environ,
        "DCOS_TENSORFLOW_URL": api.url,
        "DCOS_TENSORFLOW_SERVICE_NAME": "dev/digits",
        "DCOS_URL": api.url,
        "XDG_STATE_HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TERM": "xterm",
        "COLUMNS": "100",
    }
    with processes() as start:
        yield lambda module, *arguments, out=subprocess.PIPE: start(
            sys.executable, "-m", module, *arguments, env=environment, stdout=out, text=False
        )


@pytest.mark.parametrize("module", ["dcos_command", "tf_scheduler"])
def test_events_are_followed_as_they_happen(api, program, module: str) -> None:
    """With --json one document a line."""
    api.pages.add(JournalEntry(1, 1000.0, "X", "the first", "worker-0"))
    process = program(module, "events", "--follow", "--json")

    first = json.loads(process.stdout.readline())
    api.pages.add(JournalEntry(2, 1001.0, "X", "the second"))
    second = json.loads(process.stdout.readline())

    assert ["the first", "the second"] == [first["message"], second["message"]]
    process.send_signal(2)
    assert 130 == process.wait(PATIENCE)


@pytest.mark.parametrize("module", ["dcos_command", "tf_scheduler"])
@pytest.mark.parametrize("words", ["events -f", "logs -f worker-0"])
def test_closed_pipe_ends_following(api, program, module: str, words: str) -> None:
    """As in `..."""
    api.deploy()
    api.pages.add(JournalEntry(1, 1000.0, "X", "the first", "worker-0"))
    api.sandboxes.files["worker-0"] = {"stdout": b"the first\n"}
    process = program(module, *words.split())

    assert "the first" in process.stdout.readline().decode()
    process.stdout.close()

    assert 0 == process.wait(PATIENCE)


@pytest.mark.parametrize("module", ["dcos_command", "tf_scheduler"])
def test_progress_is_live_on_a_terminal(api, program, module: str) -> None:
    api.deploy()
    chief = api.world.id_of("chief-0")
    play(api.world, send.event(ProgressReported(chief, Progress(1, 1000.0, 25, 100, 4.0, None, 5.0, None))))
    ours, theirs = pty.openpty()
    process = program(module, "progress", out=theirs)
    os.close(theirs)
    seen = read_until(ours, r"25/100")

    play(api.world, send.event(ProgressReported(chief, Progress(2, 1001.0, 50, 100, 2.0, None, 5.0, None))))
    seen += read_until(ours, r"50/100")
    play(api.world, send.stop("enough"))
    seen += read_until(ours, "stopped: enough|stopped.*: enough")

    assert 4 == process.wait(PATIENCE)
    os.close(ours)
    assert "━" * 6 + "─" in seen.replace("\x1b[0m", "").replace("\x1b[36m", "")
    assert re.search(r"\x1b\[\d*[AFJK]", seen), "something is drawn again"


def read_until(terminal, pattern):
    """What the program draws, up to this."""
    text = b""
    while not re.search(pattern, text.decode(errors="replace")):
        text += os.read(terminal, 65_536)
    return text.decode(errors="replace")


def answer_with(answers: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a service without a result return these answers, then none."""

    def fetch(_service):
        if not answers:
            raise UnreachableError("not reachable")
        return answers.pop(0)

    monkeypatch.setattr(commands, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr(commands, "final_result", lambda _service: None)
    monkeypatch.setattr(commands, "fetch_progress", fetch)


def test_live_output_retries_a_lost_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last frame stays; the first one needs an answer."""
    monkeypatch.setattr(commands, "_MAX_SILENCE", 0.01)
    answer_with(["one", "two"], monkeypatch)
    monkeypatch.setattr(commands, "show_progress", lambda answer: (answer,))
    frames = []
    screen = SimpleNamespace(show_live=lambda live: frames.extend(live))

    for _ in range(2):
        with pytest.raises(UnreachableError, match="not reachable"):
            commands.watch_progress(ServiceClient(ClusterConnection("http://x"), ""), screen)
    assert [["one"], ["two"]] == frames[:2]
    assert {"two"} == {frame[0] for frame in frames[2:]}


class EndedRun:
    """A local run that ends after its scheduler."""

    def __init__(self) -> None:
        self.results = [None, None, {"verdict": "failed", "reason": "worker-0: exit code 1"}]

    def result(self):
        return self.results.pop(0)


def test_live_progress_ends_with_the_result_of_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler of a local run often exits before the result is polled."""
    answer_with([{"leader": None, "jobs": {}, "tasks": []}], monkeypatch)
    service = ServiceClient(ClusterConnection("http://x"), "", run=EndedRun())
    frames = []
    screen: Any = SimpleNamespace(is_interactive=True, show_live=lambda live: frames.extend(live))
    program = CliProgram(lambda *_: service, lambda *_: [service], lambda: screen, {})

    assert 1 == run_command(root_group(program), ["progress"])
    assert "failed: worker-0: exit code 1" == "".join(render_lines(frames[-1][-1]))
