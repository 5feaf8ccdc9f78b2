"""The OpenAPI document, and that every endpoint answers as documented."""

import os
import re
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from asgi_client import ask
from builders import a_spec, a_status
from kit.api import ServiceLoop, a_record, registered
from kit.commands import SchedulerCommand, run_program
from kit.fuzzing import ROUNDS
from kit.memory_store import MemoryStore
from kit.waiting import wait_until
from live_api import Sandboxes
from tf_executor.contract.reports import Progress
from tf_scheduler.api.app import create_app
from tf_scheduler.api.http.server import ApiServer
from tf_scheduler.api.routes.operations import metric_routes
from tf_scheduler.errors import OptionsError
from tf_scheduler.model.events import ProgressReported
from tf_scheduler.store.journal import EventJournal
from tf_scheduler.store.operator_files import OperatorFiles


def a_backend():
    """Of a service with a running task and a pending one."""
    spec, store, journal = a_spec(workers=1, ps=0), MemoryStore("service"), EventJournal(clock=lambda: 1.0)
    record = a_record(spec, "chief-0")
    state = registered(spec, tasks={record.name: record}, statuses={record.id: a_status(record.id)})
    sandboxes = Sandboxes()
    sandboxes.files["chief-0"] = {"stdout": b"step 1\n"}
    loop = ServiceLoop(
        state,
        journal=journal,
        files=sandboxes,
        operator_files=OperatorFiles(store, store.load()),
        preview_update=a_preview,
    )
    loop.put(lambda: ProgressReported(record.id, Progress(1, 1.0, step=1, total=9, loss=0.1)))
    journal.note("Tick", "an event")
    return loop.backend


def a_preview(document):
    """Accept all options of the right type."""
    if not isinstance(document.get("options", {}), dict) or not isinstance(document.get("environment"), dict | None):
        raise OptionsError("expected a JSON object")
    names = ("changed", "refused", "restarted", "added", "removed")
    return {**{name: [] for name in names}, "requested": None}


METRICS = tuple(metric_routes(lambda: b"up 1\n", lambda: {"gauges": {}}))
APP = create_app(a_backend(), more=METRICS)
DOCUMENT = ask(APP, "/v1/openapi.json").body
#: Schemathesis in the environment of this Python; it waits for the end of a silent stream until the timeout.
PROGRAM = Path(sys.executable).with_name("schemathesis")
SETTINGS = """
request-timeout = 20
[[operations]]
include-path = ["/v1/events", "/v1/tasks/{name}/logs"]
request-timeout = 0.4
request-retries = 5
max-stream-events = 1
"""


def test_document_has_every_endpoint() -> None:
    """At a relative address, because the API is also served below /service/NAME/."""
    assert [{"url": ".."}] == DOCUMENT["servers"]
    wanted = {"/v1/plans/{plan}", "/v1/tasks/{name}/logs", "/v1/events", "/v1/metrics", "/v1/tf/tensorboard"}
    assert wanted <= DOCUMENT["paths"].keys()
    limited = [
        path for path, rows in DOCUMENT["paths"].items() if all("429" in row["responses"] for row in rows.values())
    ]
    assert DOCUMENT["paths"].keys() - set(limited) == {"/v1/health"}
    names = [operation["operationId"] for path in DOCUMENT["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names))


def test_document_describes_parameters_and_streams() -> None:
    paths = DOCUMENT["paths"]
    (of_id,) = paths["/v1/configurations/{id}"]["get"]["parameters"]
    assert "uuid" == of_id["schema"]["format"]
    logs = paths["/v1/tasks/{name}/logs"]["get"]
    pattern = next(item["schema"]["pattern"] for item in logs["parameters"] if item["name"] == "file")
    names = ["stdout", "a/b.txt", ".hidden", "..a/...", "/a", "a//b", "a/", "..", "a/../b", "./a", ""]
    assert [True] * 4 + [False] * 7 == [bool(re.match(pattern, name)) for name in names]
    asked = [ask(APP, f"/v1/tasks/chief-0/logs?file={name}").code for name in names]
    assert [200] + [404] * 3 + [400] * 7 == asked
    events = [
        part["properties"] for part in logs["responses"]["200"]["content"]["text/event-stream"]["schema"]["anyOf"]
    ]
    assert ["end", "error", "launch", "log"] == sorted(part["event"]["const"] for part in events)
    assert {"#/components/schemas/LogEventBody"} < {part["data"]["contentSchema"]["$ref"] for part in events}
    for operation in (operation for path in paths.values() for operation in path.values()):
        assert "413" in operation["responses"]
    assert 413 == ask(APP, "/v1/plans/deploy/start", "POST", headers={"Content-Length": "99999999"}).code


def test_wrong_method_gets_allow_header() -> None:
    for path, operations in DOCUMENT["paths"].items():
        reply = ask(APP, re.sub(r"{\w+}", "x", path), "DELETE")
        allowed = {method.strip() for method in reply.headers["allow"].split(",")} - {"HEAD"}
        assert (405, {method.upper() for method in operations}) == (reply.code, allowed), path


def assert_agrees(folder: Path, port: int, phases: str, seed: int, *options: str, token: str = "") -> None:
    """Send the requests of these phases to a scheduler at a port."""
    file = folder / "schemathesis.toml"
    file.write_text(SETTINGS)
    where = [
        f"http://127.0.0.1:{port}/v1/openapi.json",
        *(["--header", f"X-TensorFlow-Token:{token}"] if token else []),
    ]
    command = [PROGRAM, "--config-file", file, "run", *where, "--checks=all", f"--phases={phases}", f"--seed={seed}"]
    variables = {**os.environ, "NO_COLOR": "1"}
    command += ["--continue-on-failure", *options]
    result = run_program(*command, cwd=folder, env=variables)
    print(result.stdout)
    assert 0 == result.returncode, f"repeat with FUZZ_SEED={seed}\n{result.stdout}{result.stderr}"


def a_seed() -> int:
    return int(os.environ.get("FUZZ_SEED", secrets.randbelow(1 << 32)))


def test_answers_agree_with_the_document(tmp_path: Path) -> None:
    """Limits of each parameter and body, and values beyond; also streams."""
    with ApiServer(create_app(a_backend(), more=METRICS), "127.0.0.1", 0) as server:
        assert_agrees(tmp_path, server.port, "examples,coverage", 4711)


def test_fuzz_openapi(tmp_path: Path) -> None:
    """Random requests, and sequences of requests that use each other's answers."""
    with ApiServer(create_app(a_backend(), more=METRICS), "127.0.0.1", 0) as server:
        assert_agrees(tmp_path, server.port, "fuzzing,stateful", a_seed(), f"--max-examples={5 * ROUNDS}")


@pytest.mark.skipif("FUZZ_ROUNDS" not in os.environ, reason="takes minutes; set FUZZ_ROUNDS")
def test_fuzz_openapi_of_real_service(tmp_path: Path, local_cluster) -> None:
    """All phases, with tasks that commands restart."""
    service = SchedulerCommand(tmp_path / "options.json", local_cluster.master.address)
    try:
        process = service.start(stderr=subprocess.DEVNULL)
        wait_until(lambda: service.status("/v1/plans/deploy") == 200, "the service does not run")
        limit = f"--max-examples={5 * ROUNDS}"
        assert_agrees(tmp_path, service.port, "examples,coverage,fuzzing,stateful", a_seed(), limit)
        service.end(process)
        process = service.start(stderr=subprocess.DEVNULL, SDK_UNINSTALL="true")
        wait_until(lambda: service.status("/v1/plans/deploy") == 200, "the service is not uninstalled")
        service.end(process)
    finally:
        service.stop()
