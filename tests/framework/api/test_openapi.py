"""The OpenAPI document, and that every endpoint answers as documented."""

import re

import schemathesis
from hypothesis import settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from asgi_client import ask
from builders import a_spec, a_status
from kit.api import ServiceLoop, a_record, registered
from kit.memory_store import MemoryStore
from tf_scheduler.api.app import create_app
from tf_scheduler.api.routes.service import metric_routes
from tf_scheduler.model.events import ProgressReported
from tf_scheduler.model.task import Progress
from tf_scheduler.store.journal import EventJournal
from tf_scheduler.store.operator_files import OperatorFiles


def a_backend():
    """Of a service with a running task and a pending one."""
    spec, store, journal = a_spec(workers=1, ps=0), MemoryStore("service"), EventJournal(clock=lambda: 1.0)
    record = a_record(spec, "chief-0")
    state = registered(spec, tasks={record.name: record}, statuses={record.id: a_status(record.id)})
    loop = ServiceLoop(state, journal=journal, operator_files=OperatorFiles(store, store.load()))
    loop.put(lambda: ProgressReported(record.id, Progress(1, 1.0, step=1, total=9, loss=0.1)))
    journal.note("Tick", "an event")
    return loop.backend


APP = create_app(a_backend(), more=tuple(metric_routes(lambda: b"up 1\n", lambda: {"gauges": {}})))
DOCUMENT = ask(APP, "/v1/openapi.json").body
SCHEMA = schemathesis.openapi.from_asgi("/v1/openapi.json", APP)
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


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
    assert [503] * 4 + [400] * 7 == asked  # nobody reaches files here
    events = logs["responses"]["200"]["content"]["text/event-stream"]["schema"]["x-events"]
    assert ["end", "error", "launch", "log"] == sorted(events)
    for operation in (operation for path in paths.values() for operation in path.values()):
        assert "413" in operation["responses"]
    assert 413 == ask(APP, "/v1/plans/deploy/start", "POST", headers={"Content-Length": "99999999"}).code


def test_wrong_method_gets_allow_header() -> None:
    for path, operations in DOCUMENT["paths"].items():
        reply = ask(APP, re.sub(r"{\w+}", "x", path), "DELETE")
        allowed = {method.strip() for method in reply.headers["allow"].split(",")} - {"HEAD"}
        assert (405, {method.upper() for method in operations}) == (reply.code, allowed), path


@SCHEMA.parametrize()
@settings(max_examples=8)
def test_endpoints_answer_as_documented(case) -> None:
    """Status, media type and body, with good and bad input (streams: test_streams.py)."""
    case.query.pop("follow", None)

    case.call_and_validate(base_url="http://localhost", checks=CHECKS)
