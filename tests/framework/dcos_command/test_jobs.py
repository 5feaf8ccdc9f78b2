"""`status`, `list`, `wait`, `cancel` and `open` of both programs."""

import json
import re
import urllib.request
import webbrowser
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from builders import with_fields
from dcos_command import service as commands
from dcos_command.client import ServiceClient
from dcos_command.command import CliProgram
from dcos_command.errors import UnreachableError
from dcos_command.main import main, plain_screen, root_group, run_command
from dcos_command.tasks import page_of
from dcos_command.transport import ClusterConnection
from simulation import send
from simulation.world import play
from tf_executor.contract.reports import Progress
from tf_executor.contract.states import Verdict
from tf_scheduler.api.http.server import ApiServer
from tf_scheduler.cli.local_run.advertisements import advertise
from tf_scheduler.model.events import ProgressReported
from tf_scheduler.model.state import JournalEntry, Result


@pytest.fixture
def training(api):
    """The service trains: its chief is at step 25 of 100."""
    api.deploy()
    progress = Progress(1, 1000.0, 25, 100, 4.0, None, 5.0, None)
    play(api.world, send.event(ProgressReported(api.world.id_of("chief-0"), progress)))


def decide(api, verdict) -> None:
    """Decide the result of the job."""
    api.world.state = with_fields(api.world.state, result=Result(verdict, "worker-0 has ended", 9.0))


@pytest.mark.usefixtures("training")
def test_status_is_one_screen(ask, api) -> None:
    """The word, the progress, the tasks, and the last five events."""
    api.pages.add(*(JournalEntry(number, 1000.0, "X", f"event {number}", None) for number in range(1, 8)))

    first, progress, heading, *rows = ask("status").lines

    assert re.match(r"dev/digits  TRAINING  http://\S+/$", first)
    assert progress.startswith("  step 25 of 100, 25 %, ")
    assert ["task", "doing", "step", "agent", "what"] == heading.split()
    assert ["chief-0", "TRAINING", "25"] in [row.split()[:3] for row in rows]
    assert [f"event {number}" for number in range(3, 8)] == [row[-7:] for row in rows if "event " in row]


def test_status_names_reasons_for_waiting(ask) -> None:
    """Before the registration no task is launched."""
    lines = ask("status").lines

    assert "QUEUED" in lines[0]
    assert "No task has been launched yet." in lines
    assert 3 == ask("--url=http://127.0.0.1:1", "status").code


@pytest.mark.usefixtures("training")
def test_list_shows_state_and_progress(own) -> None:
    heading, row = own("list").lines

    assert ["name", "doing", "step", "loss", "age", "page"] == heading.split()
    assert ["dev/digits", "TRAINING", "25/100"] == row.split()[:3]
    (entry,) = own("list", "--json").json["services"]
    assert ("training", 25, 100) == tuple(entry[name] for name in ("activity", "step", "total"))


@pytest.mark.usefixtures("training")
def test_list_asks_marathon_for_the_services(api, capsys: pytest.CaptureFixture[str]) -> None:
    """A service without an answer is listed, too; another package is not."""
    labels = {"DCOS_PACKAGE_NAME": "tensorflow"}
    apps = [{"id": "/dev/digits", "labels": labels}, {"id": "/gone", "labels": labels}, {"id": "/other", "labels": {}}]
    asked = []

    async def marathon(request):
        asked.append(dict(request.query_params))
        return JSONResponse({"apps": apps})

    def forward(request):
        with urllib.request.urlopen(f"{api.url}{request.url.path}") as answer:
            return JSONResponse(json.load(answer))

    routes = [Route("/service/marathon/v2/apps", marathon), Route("/service/dev/digits/{rest:path}", forward)]
    with ApiServer(Starlette(routes=[*routes, Mount("/", Starlette())]), "127.0.0.1", 0) as server:
        environment = {"DCOS_URL": f"http://127.0.0.1:{server.port}", "DCOS_DIR": "/nowhere"}
        assert 0 == main(["list"], environment)
        _, *rows = capsys.readouterr().out.splitlines()
        apps.clear()
        assert 0 == main(["list"], environment)
        assert 0 == main(["list", "--name", "nosuch"], environment)
    assert "No service runs.\nNo service runs with the name `nosuch`.\n" == capsys.readouterr().out
    services = [["dev/digits", "TRAINING", "25/100"], ["gone", "NO", "ANSWER"], ["gone:", "service", "`gone`"]]
    assert services == [row.split()[:3] for row in rows]
    assert {"label": "DCOS_PACKAGE_NAME==tensorflow"} == asked[0]
    assert 3 == main(["list"], {"DCOS_URL": "http://127.0.0.1:1", "DCOS_DIR": "/nowhere"})


@pytest.mark.usefixtures("training")
def test_list_shows_this_machine_if_dcos_is_down(own, api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unreachable DC/OS is reported after the services that answer."""
    monkeypatch.delenv("DCOS_TENSORFLOW_URL")
    monkeypatch.setenv("DCOS_URL", "http://127.0.0.1:1")
    assert 3 == own("list").code
    with advertise("dev/digits") as publish:
        publish(api.url)
        listed, document = own("list"), own("list", "--json")

    assert (3, ["dev/digits", "TRAINING"]) == (listed.code, listed.out.splitlines()[1].split()[:2])
    assert "http://127.0.0.1:1" in listed.err
    content = json.loads(document.out)
    assert ("dev/digits", "unreachable") == (content["services"][0]["name"], content["error"]["code"])


@pytest.mark.parametrize(("verdict", "code"), [(Verdict.SUCCEEDED, 0), (Verdict.FAILED, 1), (Verdict.STOPPED, 4)])
def test_wait_returns_the_result(ask, api, verdict, code: int) -> None:
    api.deploy()
    late = ask("wait", "--timeout", "0")
    assert (124, "not decided after 0 s") == (late.code, late.err.strip().removeprefix("dcos tensorflow: "))
    decide(api, verdict)

    result = ask("wait")

    assert (code, f"{verdict.value}: worker-0 has ended\n") == (result.code, result.out)


def test_wait_for_training_returns_at_the_first_step(ask, api) -> None:
    api.deploy()
    assert 124 == ask("wait", "--for", "training", "--timeout", "0").code
    play(api.world, send.event(ProgressReported(api.world.id_of("chief-0"), Progress(1, 1000.0, 25, 100, 4.0))))

    assert ["training: chief-0 is at step 25"] == ask("wait", "--for", "training").lines
    decide(api, Verdict.FAILED)
    assert 1 == ask("wait", "--for", "training").code
    assert 2 == ask("wait", "--for", "lunch").code


def test_wait_ends_without_answers(ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler may restart; a service that never answers is unknown."""
    assert 3 == ask("--url=http://127.0.0.1:1", "wait").code
    monkeypatch.setattr(commands, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr(commands, "_MAX_SILENCE", 0.0)
    answers = [{"verdict": None, "reason": None}]

    def get(_path):
        if not answers:
            raise UnreachableError("not reachable")
        return answers.pop()

    with pytest.raises(UnreachableError):
        commands.wait_for_result(SimpleNamespace(get=get, run=None, job=""))


class ARun:
    """A local run that ends when it is cancelled."""

    ended = None

    def result(self):
        return self.ended

    def cancel(self) -> None:
        self.ended = {"service": "mnist", "verdict": "stopped", "reason": "SIGINT received"}


def program_of(run: ARun) -> CliProgram:
    """A program that finds this run, whose scheduler does not answer."""
    service = ServiceClient(ClusterConnection("http://127.0.0.1:1"), "mnist", direct=True, run=run)
    return CliProgram(lambda *_: service, lambda *_: [service], plain_screen, {})


def test_cancel_stops_a_local_run(capsys) -> None:
    assert 0 == run_command(root_group(program_of(ARun())), ["cancel", "--timeout=0", "--yes"])
    assert ("mnist: stopped: SIGINT received\n", "") == capsys.readouterr()


@pytest.mark.parametrize("words", ["plan status", "cluster", "endpoints"])
def test_run_that_ends_meanwhile_is_reported(words: str, capsys) -> None:
    """The scheduler exits between the search for the run and the request."""
    run = ARun()
    program = program_of(run)

    codes = [run_command(root_group(program), words.split())]
    run.cancel()
    codes.append(run_command(root_group(program), words.split()))

    advice = "; see: dcos-tensorflow history show mnist"
    ended = f"mnist has ended: stopped: SIGINT received{advice}"
    assert ([3, 3], [f"mnist is ending{advice}", ended]) == (codes, capsys.readouterr().err.splitlines())


def test_cancel_asks_first(ask, api) -> None:
    """A job that has ended needs no confirmation: nothing is done."""
    api.deploy()
    refused = ask("cancel")
    assert (2, True) == (refused.code, "use `--yes`" in refused.err), refused.err
    decide(api, Verdict.SUCCEEDED)

    ended = ask("cancel")

    assert (0, True) == (ended.code, "dev/digits has already ended: succeeded: worker-0 has ended" in ended.err)


def test_cancel_of_an_ended_run_succeeds(own, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DCOS_TENSORFLOW_URL")
    monkeypatch.setenv("DCOS_DIR", "/nowhere")
    folder = tmp_path / "dcos-tensorflow" / "runs" / "mnist-1"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text('{"service": "mnist", "state": "failed", "reason": "x"}')

    assert ["mnist has already ended: failed: x"] == own("cancel", "mnist").lines


def test_open_prints_the_address_over_ssh(ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the tunnel from the user's own machine; --print: only for $(...)."""
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda url: bool(opened.append(url)))
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.9 50000 10.0.0.5 22")
    tunnel, page = ask("open").lines
    port = re.search(r":(\d+)/", page)[1]
    assert re.fullmatch(rf"on your own machine, run: ssh -N -L {port}:127.0.0.1:{port} \w+@10.0.0.5", tunnel)
    address = page.removeprefix("and open: ")
    printed = ask("open", "--print")
    assert ([address], f"{tunnel}\n") == (printed.lines, printed.err)
    monkeypatch.delenv("SSH_CONNECTION")
    assert ([address], "") == ((printed := ask("open", "--print")).lines, printed.err)
    assert [] == opened

    assert ["no browser can be started; open the address yourself"] == ask("open").lines[1:]

    assert [page.removeprefix("and open: ")] == opened
    assert 3 == ask("--url=http://127.0.0.1:1", "open").code


def test_page_of_a_local_run_has_its_token() -> None:
    """Browsers do not send the fragment; the token of another service is a secret."""
    service = ServiceClient(ClusterConnection("http://127.0.0.1:1"), "mnist", direct=True, token="a b")

    assert "http://127.0.0.1:1/" == page_of(service)
    assert "http://127.0.0.1:1/#token=a%20b" == page_of(
        ServiceClient(ClusterConnection("http://127.0.0.1:1"), "mnist", direct=True, token="a b", home=Path())
    )


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("ps", "Did you mean `list` or `tasks`?"),
        ("get", "Did you mean `list` or `status`?"),
        ("stop", "Did you mean `cancel` or `uninstall`?"),
        ("progres", "Did you mean `progress`?"),
        ("plan pauze", "Did you mean `pause`?"),
        ("trian", "`submit`"),
        ("zzzz", "No such command 'zzzz'."),
    ],
)
def test_unknown_command_suggests_one(ask, words: str, hint: str) -> None:
    refused = ask(*words.split())

    assert (2, True) == (refused.code, hint in refused.err), refused.err
