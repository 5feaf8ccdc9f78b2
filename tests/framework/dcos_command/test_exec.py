"""`exec`: a command in a task, whose simulated executor answers with a file."""

import json
import urllib.error
import urllib.request
from dataclasses import replace

import pytest

from builders import a_spec, with_fields
from dcos_command import logs
from live_api import LiveApi
from tf_executor.contract.payload import EXEC, EXEC_FOLDER, MAX_EXEC_BYTES, ExecRequest
from tf_executor.contract.reports import MAX_EXEC_OUTPUT, ExecReport
from tf_executor.contract.states import TaskState
from tf_scheduler.api.http.auth import Policy
from tf_scheduler.model.effects import MessageExecutor
from tf_scheduler.model.events import ExecRequested


class Executors:
    """Answer each command with `report`; None: not at all."""

    def __init__(self, api: LiveApi) -> None:
        self.report: ExecReport | bytes | None = ExecReport(0, stdout="out\n", stderr="err\n")
        self.requests: list[ExecRequest] = []
        self._api, self._step = api, api.world.step
        api.deploy()
        api.sandboxes.files["worker-0"] = {f"{EXEC_FOLDER}/old": b""}
        api.world.step = self.step  # type: ignore[method-assign]

    def step(self, event):
        decision = self._step(event)
        for call in decision.calls:
            if isinstance(call, MessageExecutor) and call.data.startswith(EXEC):
                record = self._api.world.state.stored.tasks["worker-0"]
                request = ExecRequest.decode(call.data, record.exec_key, record.id)
                self.requests.append(request)
                if self.report is not None:
                    content = self.report if isinstance(self.report, bytes) else self.report.encode()
                    self._api.sandboxes.files["worker-0"][f"{EXEC_FOLDER}/{request.id}"] = content
        return decision


@pytest.fixture
def executors(api) -> Executors:
    return Executors(api)


def test_command_output_and_exit_code_pass_through(ask, executors) -> None:
    """Options after `--` belong to the command."""
    executors.report = ExecReport(7, stdout="out\n", stderr="err\n")

    answer = ask("exec", "--timeout", "5", "worker-0", "--", "python", "-c", "print('a b')")

    assert (7, "out\n", "err\n") == (answer.code, answer.out, answer.err)
    (request,) = executors.requests
    assert (["python", "-c", "print('a b')"], 5.0) == (request.command, request.timeout)


def test_command_with_json_prints_a_document(own, executors) -> None:
    document = own("exec", "--json", "worker-0", "--", "true").json
    assert ("ended", 0, "out\n", False) == tuple(document[name] for name in ("state", "exit_code", "stdout", "cut"))


@pytest.mark.parametrize(
    ("report", "code", "words"),
    [
        (ExecReport(signal=11), 139, ""),
        (ExecReport(timed_out=True, stdout="some"), 124, "The command was killed after 60 s (--timeout).\n"),
        (ExecReport(0, cut=True, stdout="some"), 0, "The output is longer: only its first part is shown.\n"),
        (ExecReport(error="4 commands run in this task already"), 1, "4 commands run in this task already"),
        (b'{"exit_code": "0"}', 1, "was overwritten"),
        (b"", 1, "was overwritten"),
    ],
)
def test_unusual_end_has_a_message(own, executors, report, code: int, words: str) -> None:
    executors.report = report

    answer = own("exec", "worker-0", "--", "true")

    assert (code, True) == (answer.code, words in answer.err)


def test_whole_output_is_read(own, executors) -> None:
    """In more than one part."""
    executors.report = ExecReport(0, stdout="\0" * MAX_EXEC_OUTPUT, stderr="")
    assert len(own("exec", "worker-0", "--", "true").out) == MAX_EXEC_OUTPUT


def test_command_without_result_is_given_up(own, executors, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mesos does not resend a lost message."""
    monkeypatch.setattr(logs, "_RESULT_DELAY", -1.0)
    executors.report = None

    answer = own("exec", "--timeout", "1", "worker-0", "--", "true")

    assert (1, True) == (answer.code, "its executor has not received it" in answer.err)


def test_older_executor_is_named(own, api, executors) -> None:
    """It ignores the message and has no folder for results."""
    executors.report = None
    api.sandboxes.files["worker-0"] = {"stdout": b""}

    answer = own("exec", "worker-0", "--", "true")

    assert (1, True) == (answer.code, "of an older release (option executor.url)" in answer.err)


def test_end_of_task_ends_the_wait(own, api, executors) -> None:
    executors.report = None
    before = executors.step

    def ending(event):
        decision = before(event)
        if isinstance(event, ExecRequested):
            api.world.mesos.report(api.world.state.stored.tasks["worker-0"].id, TaskState.FAILED)
        return decision

    api.world.step = ending
    answer = own("exec", "worker-0", "--", "true")
    assert (1, True) == (answer.code, "worker-0 has ended" in answer.err)


@pytest.mark.parametrize(
    ("task", "command", "words"),
    [
        ("worker-9", ("true",), "Task worker-9 not found"),
        ("worker-0", ("x" * MAX_EXEC_BYTES,), "command too long: the limit is 32768 bytes"),
        ("worker-0", ("",), "expected a program and its arguments"),
    ],
)
def test_invalid_command_is_refused(own, executors, task: str, command: tuple[str, ...], words: str) -> None:
    answer = own("exec", task, "--", *command)

    assert (1, True, []) == (answer.code, words in answer.err, executors.requests)


def test_forbidden_command_names_the_option(own, api, executors) -> None:
    spec = api.world.state.spec
    api.world.state = replace(api.world.state, spec=replace(spec, executor=replace(spec.executor, allows_exec=False)))
    answer = own("exec", "worker-0", "--", "true")
    assert (1, True) == (answer.code, "option executor.exec" in answer.err)


# --- The API


def send(api: LiveApi, path: str, token: str, body: object = None) -> tuple[int, str]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"{api.url}/v1/tasks/{path}", data, headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize(("token", "code"), [("", 401), ("reader", 403), ("writer", 200)])
def test_command_needs_the_write_token(token: str, code: int) -> None:
    with LiveApi(a_spec(), Policy(read_token="reader", write_token="writer")) as api:
        executors = Executors(api)
        assert code == send(api, "worker-0/exec", token, {"command": ["true"]})[0]
        assert (code == 200) == bool(executors.requests)


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"command": "true"},
        {"command": []},
        {"command": [1]},
        {"command": ["a\0b"]},
        {"command": ["true"], "timeout": 0},
        {"command": ["true"], "timeout": 3601},
        {"command": ["true"], "timeout": True},
        {"command": ["true"], "user": "root"},
    ],
)
def test_malformed_request_is_refused(api, executors, body: object) -> None:
    assert (400, []) == (send(api, "worker-0/exec", "", body)[0], executors.requests)


@pytest.mark.parametrize("name", ["old", "0" * 31, "%2e%2e%2fstdout", "0" * 32 + "%0a"])
def test_result_name_is_checked(api, executors, name: str) -> None:
    assert 404 == send(api, f"worker-0/exec/{name}", "")[0]


def test_key_of_launch_is_in_no_answer(api, executors) -> None:
    """Of no path of the API without parameters or with the task's name."""
    key, state = "the-key-of-this-launch", api.world.state
    launches = {name: replace(record, exec_key=key) for name, record in state.stored.tasks.items()}
    api.world.state = with_fields(state, tasks=launches)
    with urllib.request.urlopen(f"{api.url}/v1/openapi.json") as answer:
        paths = [path for path, methods in json.load(answer)["paths"].items() if "get" in methods]
    seen = 0
    for path in paths:
        url = path.replace("{pod}", "worker-0").replace("{name}", "worker-0").replace("{task}", "worker-0")
        if "{" in url or url in ("/v1/events", "/v1/tasks/worker-0/logs"):
            continue
        status, text = 0, ""
        try:
            with urllib.request.urlopen(f"{api.url}{url}") as answer:
                status, text = answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode()
        seen += status == 200
        assert key not in text, url
    assert seen > 20
