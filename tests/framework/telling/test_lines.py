"""Lines of the log: for people and for programs, each for itself, without secrets."""

import base64
import io
import json
import logging
import sys
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_scheduler.logging_setup import KEYS, ConsoleFormatter, JsonFormatter, SecretRedactor, parse_line

FACTS = {"task": "worker-0", "task_id": "worker-0__1", "agent_id": "S1", "decision": "StatusUpdated-17"}
FORMS = {"console": ConsoleFormatter, "json": JsonFormatter}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)


def written(form, message, *, masks=(), error=None, **facts):
    """What a logger writes."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(FORMS[form](SecretRedactor(masks)))
    record = logging.makeLogRecord({"name": "tf_scheduler.runner", "levelname": "INFO", "msg": message, **facts})
    if error is not None:
        record.exc_info = (type(error), error, None)
    handler.handle(record)
    return stream.getvalue()


def test_a_line_for_people_says_what_it_is_about():
    """Behind what it says; keys that are not known are left out."""
    text = written("console", "worker-0 on agent-1 is running", **FACTS)

    assert text.endswith(
        " INFO tf_scheduler.runner: worker-0 on agent-1 is running "
        "[task=worker-0 task_id=worker-0__1 agent_id=S1 decision=StatusUpdated-17]\n"
    )


def test_a_line_for_programs_has_all_keys():
    """null where it is about no such thing."""
    line = json.loads(written("json", "worker-0 is running", **FACTS))

    assert {"time", "level", "logger", "message", *KEYS} == set(line)
    assert {**FACTS, "offer_id": None} == {key: line[key] for key in KEYS}
    assert line["time"].endswith("Z")


@pytest.mark.parametrize("form", FORMS)
@given(message=TEXTS)
def test_nothing_that_is_logged_looks_like_another_line(form, message):
    """Line ends in a message make no line of their own that reads like one of ours."""
    first, *rest = written(form, f"begin {message}\n2026-01-31 12:00:00,000 INFO a: b", **FACTS).splitlines()

    assert parse_line(first) is not None
    assert all(parse_line(line) is None for line in rest)


@pytest.mark.parametrize("form", FORMS)
def test_both_are_read_again(form):
    """By what follows a scheduler's log."""
    text = written(form, "worker-0 is [running]", **FACTS).rstrip("\n")

    assert ("tf_scheduler.runner", "worker-0 is [running]") == parse_line(text)


@pytest.mark.parametrize("text", ["{", "{}", '{"logger": 1}', "[]", "", "Fetching file:"])
def test_other_lines_are_no_lines_of_ours(text):
    """Whatever they are."""
    assert parse_line(text) is None


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", ["message", "error", "fact"])
def test_secrets_are_hidden_wherever_they_stand(form, place):
    """Values with line ends, line by line; passwords in addresses, known or not."""
    said = "token hunter2-hunter2, line 5ecret-line, http://me:pass@host/"
    given = {"message": "x", "error": None, **FACTS}
    given |= {"error": ValueError(said)} if place == "error" else {"message" if place == "message" else "task": said}

    text = written(form, given.pop("message"), masks=["hunter2-hunter2", "first\n5ecret-line\n", "e"], **given)

    assert not [word for word in ("hunter2", "5ecret", "pass@") if word in text]
    assert 3 == text.count("********")
    assert "token" in text


def test_secrets_are_hidden_in_the_forms_that_messages_have():
    """A header, an address, a text in quotes."""
    secret = 'hunter2/hunter2"\\end'
    basic = base64.b64encode(f"user:{secret}".encode()).decode()
    said = f"Authorization: Basic {basic}, /login?token={urllib.parse.quote(secret)}, {[secret]!r}"

    text = written("console", said, masks=[secret])

    assert 3 == text.count("********")
    assert "hunter2" not in text


def test_python_says_where_an_error_came_from():
    """With the error's lines indented, so that they belong to the line before."""
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
