"""State stored and answers given by f4c6949 stay valid. See f4c6949/record.py.txt.

A change here breaks services that run. Texts for people may change: see PROSE.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from asgi_client import ask
from contracts.service import Service, digests, names, readable, stored_again
from kit.zookeeper_ensemble import ZooKeeperEnsemble
from tf_scheduler.options.configurations import with_stored_defaults
from tf_scheduler.store.interface import StateStore
from tf_scheduler.store.sqlite import SqliteStore
from tf_scheduler.store.zookeeper import ZooKeeperAddress, ZooKeeperStore

RECORDED = Path(__file__).parent / "f4c6949"
SERVICES = ("running", "finished")
#: Keys of JSON whose texts are for people.
PROSE = frozenset(
    {"description", "errors", "explanation", "message", "reason", "reasons", "sentence", "summary", "told"}
)
#: Chosen with jitter.
RANDOM = frozenset({"refuse_seconds"})
#: What the placeholder of a paused task prints.
PRINTED = re.compile(r"(?<=^printf '%s\\n' ).*(?=; while :;)", re.DOTALL)
#: New ids, of which only the number of draws before may differ, and the key in TensorBoard's path.
RANDOM_PART = re.compile(r"(?<=new-)\d+|(?<=tensorboard/)[\w-]{22}(?=/)")
#: Labels of tasks since then.
NEW_LABELS = frozenset({"record"})
#: The version of a payload is higher since new executors must understand more. They extract archives themselves, and
#: their command changes to the sandbox first.
NEW_VALUES = ("> data > version", "> extract", "> executor > command > value", "parameters[1] > schema > pattern")
#: Endpoints of f4c6949 that were removed on purpose.
GONE = frozenset({"/v1/artifacts/template/{id}/{pod}/{task}/{name}"})

Open = Callable[[str], tuple[Any, StateStore]]


def recorded(*parts: str) -> Any:
    return json.loads(RECORDED.joinpath(*parts).read_text())


def comparable(value: Any, key: str = "") -> Any:
    """Without prose, chance and new ids."""
    if key in PROSE and value:
        return "<text>"
    if key in RANDOM:
        return "<random>"
    if key == "pending" and isinstance(value, dict | list):  # reasons: of each task, or of one
        return dict.fromkeys(value, "<text>") if isinstance(value, dict) else ["<text>"] * len(value)
    if isinstance(value, dict):
        return {name: comparable(item, name) for name, item in value.items()}
    if key == "labels" and isinstance(value, list):
        value = [label for label in value if label["key"] not in NEW_LABELS]
    if isinstance(value, list):
        return [comparable(item) for item in value]
    return re.sub(RANDOM_PART, "*", re.sub(PRINTED, "<text>", value)) if isinstance(value, str) else value


def differences(expected: Any, actual: Any, path: str = "") -> Iterator[str]:
    """Differences that clients of the recorded JSON would notice, but new keys."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key, value in expected.items():
            yield from differences(value, actual.get(key, "(missing)"), f"{path} > {key}")
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for number, values in enumerate(zip(expected, actual, strict=True)):
            yield from differences(*values, f"{path}[{number}]")
    elif expected != actual and not path.endswith(NEW_VALUES):
        yield f"{path}: {expected!r} was recorded, now {actual!r}"


def assert_same_answers(expected: Any, answers: Any) -> None:
    current = {path: answer for path, answer in expected.items() if path not in GONE}
    assert [] == list(differences(comparable(current), comparable(answers)))


def command(home: Path, *arguments: object) -> str:
    """Run the command line; return what it prints."""
    line = [sys.executable, "-m", "tf_scheduler", *map(str, arguments)]
    environment = {**os.environ, "HOME": str(home), "XDG_DATA_HOME": str(home), "XDG_STATE_HOME": str(home)}
    return subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


@pytest.fixture
def open_sqlite(tmp_path: Path) -> Iterator[Open]:
    """Open a copy of a recorded state file: its options and its store."""
    with ExitStack() as stores:

        def open_copy(name: str) -> tuple[Any, StateStore]:
            options = recorded(name, "options.json")
            file = tmp_path / f"{name}.db"
            shutil.copyfile(RECORDED / name / "state.db", file)
            return options, stores.enter_context(closing(SqliteStore(file, options["service"]["name"])))

        yield open_copy


@pytest.mark.parametrize("name", SERVICES)
def test_stored_values_decode_and_encode_unchanged(open_sqlite: Open, name: str) -> None:
    """But for the schema: schedulers of schema 1 refuse values with a checksum."""
    options, store = open_sqlite(name)
    values = store.load()
    beside = ("journal/", "files/", "curves")

    again = stored_again(options, values)

    expected = {key: json.loads(value) for key, value in values.items() if not key.startswith(beside)}
    assert expected.keys() == again.keys()
    for key, value in again.items():
        # Schema 2 has a checksum and new fields.
        assert {**expected[key], "schema": 2} == {
            name: item for name, item in json.loads(value).items() if name in expected[key]
        }


@pytest.mark.parametrize("name", SERVICES)
def test_stored_state_opens_with_the_same_answers(open_sqlite: Open, name: str) -> None:
    """Opening changes nothing: a new configuration would restart tasks."""
    options, store = open_sqlite(name)
    values, expected = dict(store.load()), recorded(name, "opened.json")

    opened = Service(options, store, lambda: expected["now"])

    assert_same_answers(expected["answers"], opened.answers())
    assert values == store.load()


def test_running_service_continues_with_the_same_calls(open_sqlite: Open) -> None:
    """Calls to Mesos for recorded events are the same, with payloads of launches."""
    options, store = open_sqlite("running")
    expected = recorded("running", "continued.json")
    now = [expected["heard"][0]["at"]]
    opened = Service(options, store, lambda: now[0])

    for event in expected["heard"]:
        now[0] = event["at"]
        calls = readable(opened.hear(event["event"]))
        assert [] == list(differences(comparable(event["calls"]), comparable(calls)))
    assert_same_answers(without_new_events(expected["answers"]), opened.answers())


def without_new_events(answers: dict[str, Any]) -> dict[str, Any]:
    """How many events a step has is not a contract."""
    return {path: answer for path, answer in answers.items() if not path.startswith("/v1/events")}


@pytest.mark.zookeeper
def test_zookeeper_tree_opens_with_the_same_answers(tmp_path: Path) -> None:
    """The same services, as f4c6949 stored them in a real ZooKeeper."""
    with ZooKeeperEnsemble() as ensemble:
        for name in SERVICES:
            load_tree(ensemble.addresses, f"/{name}", recorded(name, "zookeeper.json"))
            options, expected = recorded(name, "options.json"), recorded(name, "opened.json")
            place = ZooKeeperAddress((ensemble.addresses,), chroot=f"/{name}", session_timeout=20.0)
            with closing(ZooKeeperStore(place, options["service"]["name"])) as store:
                opened = Service(options, store, partial(float, expected["now"]))
                assert_same_answers(expected["answers"], opened.answers())


def load_tree(address: str, chroot: str, nodes: dict[str, str]) -> None:
    client = KazooClient(address)
    client.start(timeout=30)
    try:
        for path, data in sorted(nodes.items()):
            client.create(f"{chroot}{path}".rstrip("/"), base64.b64decode(data), makepath=True)
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize("name", SERVICES)
def test_backup_is_imported_and_exported_unchanged(tmp_path: Path, name: str) -> None:
    """`state import` of an old backup, then `state export` and `state show`."""
    service_name = recorded(name, "options.json")["service"]["name"]
    file, backup = tmp_path / "state.db", RECORDED / name / "backup.json"

    command(tmp_path, "state", "import", file, backup, "--service", service_name)

    exported = json.loads(command(tmp_path, "state", "export", file, "--service", service_name))
    about = {"exported": "", "program": ""}
    assert {**recorded(name, "backup.json"), **about} == {**exported, **about}
    output = json.loads(command(tmp_path, "state", "show", file, "--service", service_name, "--json"))
    assert recorded(name, "summary.json") == output


@pytest.mark.parametrize("name", SERVICES)
def test_history_shows_old_runs_and_recordings(tmp_path: Path, name: str) -> None:
    """A run database and a recording of f4c6949 give the run that it showed."""
    (tmp_path / "old/dcos-tensorflow").mkdir(parents=True)
    shutil.copyfile(RECORDED / name / "runs.db", tmp_path / "old/dcos-tensorflow/history.db")
    recording, options = RECORDED / name / "recording.jsonl", tmp_path / "options.json"
    options.write_text(json.dumps(with_stored_defaults(recorded(name, "options.json"))))

    command(tmp_path / "new", "history", "add", recording, "--options", options)

    for home in ("old", "new"):
        output = json.loads(command(tmp_path / home, "history", "show", "last", "--json"))
        expected = recorded(name, "history.json")
        if home == "new":  # numbers of tasks without a default are always listed
            expected["options"] = with_stored_defaults(expected["options"])
        assert {**output, **expected} == output
        assert {"best", "note"} == output.keys() - expected.keys()


def test_openapi_document_keeps_what_it_had(open_sqlite: Open) -> None:
    """Paths, parameters, codes and schemas; descriptions may change."""
    options, store = open_sqlite("finished")
    document, expected = (
        ask(Service(options, store, lambda: 0.0).app, "/v1/openapi.json").body,
        recorded("openapi.json"),
    )
    for path in GONE:
        del expected["paths"][path]
    for path, operations in expected["paths"].items():
        for method, operation in operations.items():
            correct(operation, document["paths"][path][method])

    assert [] == list(differences(comparable(expected), comparable(document)))


def correct(recorded: dict[str, Any], current: dict[str, Any]) -> None:
    """Take out of a recorded operation what the answers of f4c6949 disagreed with."""
    security = [item for item in current.get("security", ()) if "token" not in item]
    assert recorded.pop("security", []) == security
    has_json_errors = "text/plain" not in current["responses"]["413"]["content"]
    for response in recorded["responses"].values():
        # An object with an event's fields; `string` before, with the schemas of the data in an extension.
        response.get("content", {}).pop("text/event-stream", None)
        if has_json_errors:  # the endpoints that the SDK lacks
            response.get("content", {}).pop("text/plain", None)
    if "400" not in current["responses"]:  # without parameters and a body
        recorded["responses"].pop("400", None)
    # A step requires a phase, which needs a parameter for both; requests are the same.
    for item in current.get("parameters", ()):
        if item["name"] == "phase_step":
            assert ["phase", "step"] == list(item["schema"]["properties"])
            recorded["parameters"] = [item for item in recorded["parameters"] if item["in"] == "path"]
            current["parameters"].remove(item)
            break
    # A further optional parameter changes nothing for clients that do not send it.
    if known := {item["name"] for item in recorded.get("parameters", ())}:
        current["parameters"] = [item for item in current["parameters"] if item["name"] in known or item["required"]]


def test_launch_digests_are_unchanged() -> None:
    """Another digest restarts every running task at the scheduler's upgrade."""
    for item in recorded("digests.json"):
        assert item["digests"] == digests(item["options"])


@pytest.mark.parametrize("complete", [with_stored_defaults, dict])
def test_files_of_beta_tensorflow_mean_the_same(complete: Callable[[Any], Any]) -> None:
    """Stored ones and new ones, though omitted counts follow the strategy since then."""
    for item in recorded("original.json"):
        assert item["digests"] == digests(item["options"], complete)


def test_names_that_leave_the_process_are_unchanged() -> None:
    """Kinds of reasons and events are in answers, metrics and logs; there may be more."""
    current = names()
    for kind, before in recorded("names.json").items():
        assert set() == set(before) - set(current[kind])
