"""`submit` to a DC/OS, with both programs; on this machine: cli/test_submit.py."""

import json
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from builders import a_spec, with_fields
from dcos_command import service
from dcos_command.errors import UnreachableError
from live_api import LiveApi
from tf_executor.contract.states import Verdict
from tf_scheduler.model.state import Result

INSTALL = "/package/install"


class Cosmos:
    """Accepts installations; `installed` are the options."""

    def __init__(self) -> None:
        self.installed: list[object] = []
        self.refusal: dict[str, object] = {}

    async def install(self, request: Request) -> JSONResponse:
        body = await request.json()
        if self.refusal:
            return JSONResponse(self.refusal, 409)
        assert "tensorflow" == body["packageName"]
        assert "package.install-request" in request.headers["content-type"]
        self.installed.append(body["options"])
        return JSONResponse({"packageName": "tensorflow", "packageVersion": "0.1.0", "appId": "/dev/digits"})


@pytest.fixture
def cosmos() -> Cosmos:
    return Cosmos()


@pytest.fixture
def api(cosmos: Cosmos):
    """A DC/OS: Cosmos, and behind /service/ the scheduler that it starts."""
    with LiveApi(a_spec(name="dev/digits"), after=[Route(INSTALL, cosmos.install, methods=["POST"])]) as live:
        yield live


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "options.json"
    service = {"name": "dev/digits", "strategy": "independent", "command": "true", "job_url": "http://x/train.py"}
    path.write_text(json.dumps({"service": service, "worker": {"count": 1}}))
    return path


def decide(api: LiveApi, verdict: Verdict) -> None:
    api.deploy()
    api.world.state = with_fields(api.world.state, result=Result(verdict, "worker-0 has ended", 9.0))


def test_detached_job_is_installed_and_named(ask, api, cosmos: Cosmos, file: Path) -> None:
    """With the changed options, and the address of the page."""
    result = ask("submit", str(file), "--detach", "--set", "worker.count=4", "--set", "service.environment.LR=0.1")

    assert ["submitted dev/digits", f"page: {api.url}/service/dev/digits/"] == result.lines
    (options,) = cosmos.installed
    assert 4 == options["worker"]["count"]
    assert "0.1" in json.dumps(options["service"]["environment"])
    again = ask("submit", str(file), "--detach", "--json")
    assert {"service": "dev/digits", "page": f"{api.url}/service/dev/digits/"} == again.json


def test_section_of_a_queue_is_not_installed(ask, api, cosmos: Cosmos, file: Path) -> None:
    """A job file must work alone, too; Cosmos would refuse the section."""
    document = json.loads(file.read_text())
    file.write_text(json.dumps({**document, "job": {"priority": 5}}))

    result = ask("submit", str(file), "--detach")

    assert (0, [document]) == (result.code, cosmos.installed)
    assert "notice: job: has no effect" in result.err


@pytest.mark.parametrize(("verdict", "code"), [(Verdict.SUCCEEDED, 0), (Verdict.FAILED, 1), (Verdict.STOPPED, 4)])
def test_submit_follows_to_the_result(ask, api, file: Path, verdict: Verdict, code: int) -> None:
    decide(api, verdict)

    result = ask("submit", str(file))

    assert (code, f"{verdict.value}: worker-0 has ended\n") == (result.code, result.out.partition("to remove")[0]), (
        result.err
    )
    assert "page: " in result.err


def test_followed_job_without_a_record_is_named(own, api, file: Path) -> None:
    """A user who relies on the history is warned; the exit code is the job's."""
    decide(api, Verdict.SUCCEEDED)

    result = own("submit", str(file))

    assert 0 == result.code
    assert "warning: the history lacks the run of dev/digits: " in result.err


def test_submit_waits_for_the_scheduler(dcos, api, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each state is printed once; a service that is removed meanwhile is an error."""
    verdicts: list[str | None] = ["", None, None, "failed"]

    def final_result(_service):
        if (verdict := verdicts.pop(0)) == "":
            raise UnreachableError("starting")
        return verdict and {"verdict": verdict, "reason": "x"}

    last = ["exit code 3", None]
    monkeypatch.setattr(service, "final_result", final_result)
    monkeypatch.setattr(service, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr("dcos_command.client.CosmosInstallation.last_failure", lambda _, finished: last.pop(0))

    result = dcos("submit", str(file))
    assert 1 == result.code
    assert ["waiting: exit code 3", "queued: ps-0, worker-0 and 2 others"] == result.err.splitlines()[2:]
    verdicts.append("")
    assert "dev/digits was removed before its job has ended" in dcos("submit", str(file)).err


@pytest.mark.parametrize("program", ["dcos", "own"])
def test_all_wrong_settings_are_reported(request, cosmos: Cosmos, file: Path, program: str) -> None:
    """Before anything is sent; `dcos-tensorflow` also checks the options."""
    ask = request.getfixturevalue(program)
    settings = ("x", "worker=1", "worker..a=1", "worker.count.a=1", "worker.cont=1")

    result = ask("submit", str(file), *(part for each in settings for part in ("--set", each)))

    assert 1 == result.code
    for setting in settings[:3]:
        assert f"--set {setting}: expected SECTION.OPTION=VALUE" in result.err
    assert "--set worker.count.a=1: `count` is not an object in the options file" in result.err
    assert ("worker.cont: unknown option" in result.err) is (program == "own")
    assert [] == cosmos.installed


def test_relative_job_url_is_refused(ask, cosmos: Cosmos, file: Path) -> None:
    """Agents of a cluster do not have it."""
    result = ask("submit", str(file), "--set", "service.job_url=train.py")

    assert 1 == result.code
    assert "service.job_url: `train.py`: agents cannot read files of this machine; copy it to" in result.err
    assert f"dcos-tensorflow local run {file}" in result.err
    assert [] == cosmos.installed


def test_service_of_one_job_accepts_no_others(ask, cosmos: Cosmos, file: Path) -> None:
    result = ask("submit", str(file), "--to", "dev/digits", "--detach")

    assert (1, True) == (result.code, "is not a queue service: it accepts no jobs" in result.err), result.err
    assert [] == cosmos.installed


def test_refusal_of_cosmos_is_shown(ask, cosmos: Cosmos, file: Path) -> None:
    cosmos.refusal = {"type": "PackageAlreadyInstalled", "message": "Package is already installed"}

    result = ask("submit", str(file), "--json")

    assert (1, "Package is already installed") == (result.code, json.loads(result.out)["error"]["message"])


def test_name_replaces_that_of_the_file(own, dcos, cosmos: Cosmos, file: Path) -> None:
    for ask in (own, dcos):  # the fixture passes --name=dev/digits
        assert 0 == ask("submit", str(file), "--detach", "--set", "service.name=other", "--name", "dev/digits").code
    assert ["dev/digits", "dev/digits"] == [options["service"]["name"] for options in cosmos.installed]


def test_address_of_a_scheduler_is_explained(own, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs one job."""
    with LiveApi(a_spec()) as scheduler:
        monkeypatch.setenv("DCOS_TENSORFLOW_URL", scheduler.url)
        result = own("submit", str(file))
    assert 1 == result.code
    assert "is not the address of a DC/OS; a scheduler runs one job, which `dcos-tensorflow update start`" in result.err
    assert 3 == own("submit", str(file), "--url", "http://127.0.0.1:1").code
