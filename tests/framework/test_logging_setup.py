"""Log records: fields, console and JSON format, redacted secrets."""

import base64
import io
import json
import logging
import sys
import urllib.parse
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import a_spec
from simulation import send
from simulation.mesos import an_agent
from simulation.world import World, play
from tf_executor.contract.states import TaskState
from tf_scheduler.logging_setup import KEYS, ConsoleFormatter, JsonFormatter, SecretRedactor, parse_line

FACTS = {
    "task": "worker-0",
    "task_id": "worker-0__1",
    "agent_id": "S1",
    "decision": "StatusUpdated-17",
    "outcome": "TaskStatus",
}
FORMS = {"console": ConsoleFormatter, "json": JsonFormatter}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)


def written(form, message, *, masks=(), error=None, **facts):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(FORMS[form](SecretRedactor(masks)))
    record = logging.makeLogRecord({"name": "tf_scheduler.runner", "levelname": "INFO", "msg": message, **facts})
    if error is not None:
        record.exc_info = (type(error), error, None)
    handler.handle(record)
    return stream.getvalue()


def test_console_line_ends_with_fields() -> None:
    """Unknown fields are omitted."""
    text = written("console", "worker-0 on agent-1 is running", **FACTS)

    assert text.endswith(
        " INFO tf_scheduler.runner: worker-0 on agent-1 is running "
        "[task=worker-0 task_id=worker-0__1 agent_id=S1 decision=StatusUpdated-17 outcome=TaskStatus]\n"
    )


def test_json_line_has_all_keys() -> None:
    line = json.loads(written("json", "worker-0 is running", **FACTS))

    assert {"time", "level", "logger", "message", *KEYS} == set(line)
    assert {**FACTS, "job": None, "offer_id": None} == {key: line[key] for key in KEYS}
    assert line["time"].endswith("Z")


@pytest.mark.parametrize("form", FORMS)
@given(message=TEXTS)
def test_message_cannot_imitate_another_line(form, message) -> None:
    first, *rest = written(form, f"begin {message}\n2026-01-31 12:00:00,000 INFO a: b", **FACTS).splitlines()

    assert parse_line(first) is not None
    assert all(parse_line(line) is None for line in rest)


@pytest.mark.parametrize("form", FORMS)
def test_parse_line_reads_both_formats(form: str) -> None:
    text = written(form, "worker-0 is [running]", **FACTS).rstrip("\n")

    assert ("tf_scheduler.runner", "worker-0 is [running]") == parse_line(text)


@pytest.mark.parametrize("text", ["{", "{}", '{"logger": 1}', "[]", "", "Fetching file:"])
def test_parse_line_ignores_foreign_lines(text: str) -> None:
    assert parse_line(text) is None


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", ["message", "error", "fact"])
def test_secrets_are_redacted_in_all_fields(form: str, place: str) -> None:
    """Multi-line values by line; passwords in URLs, known or not."""
    said = "token hunter2-hunter2, line 5ecret-line, http://me:pass@host/"
    given: dict[str, Any] = {"message": "x", "error": None, **FACTS}
    given |= {"error": ValueError(said)} if place == "error" else {"message" if place == "message" else "task": said}

    text = written(form, given.pop("message"), masks=["hunter2-hunter2", "first\n5ecret-line\n", "e"], **given)

    assert not [word for word in ("hunter2", "5ecret", "pass@") if word in text]
    assert 3 == text.count("********")
    assert "token" in text


def test_encoded_secrets_are_redacted() -> None:
    """In a header, a URL, a quoted text."""
    secret = 'hunter2/hunter2"\\end'
    basic = base64.b64encode(f"user:{secret}".encode()).decode()
    said = f"Authorization: Basic {basic}, /login?token={urllib.parse.quote(secret)}, {[secret]!r}"

    text = written("console", said, masks=[secret])

    assert 3 == text.count("********")
    assert "hunter2" not in text


def test_traceback_lines_are_indented() -> None:
    """So that they belong to the record."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(ConsoleFormatter(SecretRedactor()))
    try:
        raise ValueError("no")
    except ValueError:
        handler.handle(logging.LogRecord("a", logging.ERROR, "", 1, "it failed", (), sys.exc_info()))
    first, *rest = stream.getvalue().splitlines()

    assert first.endswith(" ERROR a: it failed")
    assert "    ValueError: no" == rest[-1]
    assert all(line.startswith("    ") for line in rest)


def logged(caplog):
    return [{key: getattr(line, key, None) for key in ("message", *KEYS)} for line in caplog.records]


def test_log_fields_of_launch(caplog: pytest.LogCaptureFixture) -> None:
    """All launches of a gang have the same decision."""
    caplog.set_level("INFO", "tf_scheduler.runner")
    world = play(World(a_spec(), an_agent()), send.register(), send.offers())

    launches = [line for line in logged(caplog) if " is placed on " in line["message"]]
    assert {"ps-0", "worker-0", "worker-1", "chief-0"} == {line["task"] for line in launches}
    for line in launches:
        record = world.state.stored.tasks[line["task"]]
        assert (record.id, record.agent_id) == (line["task_id"], line["agent_id"])
        assert line["offer_id"]
    (decision,) = {line["decision"] for line in launches}
    assert decision.startswith("OffersReceived-")


def test_log_fields_of_status(caplog: pytest.LogCaptureFixture) -> None:
    """Outcomes for other tasks have the ids of those tasks."""
    world = play(World(a_spec(), an_agent()), send.register(), send.offers(), send.running())
    caplog.set_level("INFO", "tf_scheduler.runner")
    old = world.id_of("ps-0")

    play(world, send.status("ps-0", TaskState.FAILED, signal=9, message="killed"), send.offers())

    lost, *_ = (line for line in logged(caplog) if line["task"] == "ps-0")
    assert old == lost["task_id"] != world.id_of("ps-0")
    assert lost["decision"].startswith("StatusUpdated-")
    others = [line for line in logged(caplog) if line["task"] not in (None, "ps-0")]
    assert others
    assert not [line for line in others if line["task_id"] == old]


def test_log_hides_secrets_of_all_owners_until_they_are_replaced() -> None:
    """Several jobs of one service write into one log."""
    redactor = SecretRedactor(["first-secret"])
    redactor.set("train-1", ["second-secret"])
    redactor.set("train-2", ["third-secret"])
    redactor.set("train-1", ())

    assert "******** second-secret ********" == redactor.redact("first-secret second-secret third-secret")
