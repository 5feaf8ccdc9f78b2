"""Flags of agents: what an agent answers, and what counts as no answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from kit.certificates import Certificates
from kit.http_server import HttpServer, QuietHandler
from mesos_client.credentials import BasicCredentials, Tls
from tf_scheduler.mesos import offer_gate
from tf_scheduler.mesos.offer_gate import AgentFlagsError, read_flags
from tf_scheduler.model.offer import authenticates_executors

CREDENTIALS = BasicCredentials("tf", "password")
FLAGS = {"authenticate_http_executors": "true", "work_dir": "/var/lib/mesos"}


class Agent(HttpServer):
    """Answers each request with one status and body, and records the requests."""

    def __init__(self, status: int = 200, body: bytes = json.dumps({"flags": FLAGS}).encode()) -> None:
        self.asked: list[tuple[str, str]] = []
        agent = self

        class Handler(QuietHandler):
            def respond(self) -> None:
                agent.asked.append((self.path, self.headers.get("Authorization", "")))
                self.answer(status, body)

        super().__init__(Handler)


@contextmanager
def encrypted_agent(certificates: Certificates) -> Iterator[Agent]:
    with Agent() as agent:
        agent.encrypt(certificates.server_context())
        yield agent


def test_flags_are_read_by_name() -> None:
    with Agent() as agent:
        assert FLAGS == read_flags(agent.url)
    assert [("/flags", "")] == agent.asked


def test_credentials_are_sent_over_https_only(certificates: Certificates) -> None:
    """Over http every agent, and every listener on the way, would get them."""
    with Agent() as agent, encrypted_agent(certificates) as encrypted:
        assert FLAGS == read_flags(agent.url, CREDENTIALS)
        assert FLAGS == read_flags(encrypted.url, CREDENTIALS, Tls(verify=certificates.ca))
    assert [("/flags", "")] == agent.asked
    assert [("/flags", CREDENTIALS.header())] == encrypted.asked


def test_certificate_of_unknown_authority_is_refused(certificates: Certificates) -> None:
    with encrypted_agent(certificates) as agent, pytest.raises(AgentFlagsError, match="does not answer"):
        read_flags(agent.url, CREDENTIALS, Tls())
    assert [] == agent.asked


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (401, b"", "HTTP 401: no permission"),
        (403, b"", "HTTP 403: no permission"),
        (302, b"", "HTTP 302"),
        (500, b"", "HTTP 500"),
        (200, b"<html>", "did not return the flags"),
        (200, b"[]", "did not return the flags"),
        (200, b'{"flags": 1}', "did not return the flags"),
        (200, b"[" * 100_000, "did not return the flags"),
    ],
)
def test_other_answer_is_an_error(status: int, body: bytes, message: str) -> None:
    with Agent(status, body) as agent, pytest.raises(AgentFlagsError, match=message):
        read_flags(agent.url)


def test_absent_agent_is_an_error() -> None:
    with Agent() as agent:
        url = agent.url
    with pytest.raises(AgentFlagsError, match="/flags does not answer"):
        read_flags(url)


@pytest.mark.parametrize(
    ("flags", "expected"), [(FLAGS, True), ({}, False), ({"authenticate_http_executors": "false"}, False)]
)
def test_only_true_flag_authenticates(flags: dict[str, str], expected: bool) -> None:
    assert authenticates_executors(flags) is expected


def test_answer_that_arrives_byte_by_byte_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timeout of a socket starts again with each byte, also of the head."""
    monkeypatch.setattr(offer_gate, "_ANSWER_TIMEOUT", 0.3)
    end = threading.Event()

    class Slow(QuietHandler):
        def respond(self) -> None:
            with suppress(OSError):  # the client has left
                while not end.wait(0.02):
                    self.wfile.write(b" ")

    with HttpServer(Slow) as agent:
        try:
            with pytest.raises(AgentFlagsError, match="does not answer"):
                read_flags(agent.url)
        finally:
            end.set()
