"""Who may do what with jobs of a queue service: tokens and certificates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from kit.certificates import Certificates
from kit.commands import scheduler_environment, start_scheduler
from kit.waiting import wait_until
from mesos_local.host import free_ports

TOKENS = {"ANA": "token-of-ana", "BEN": "token-of-ben", "OPERATOR": "token-of-operator", "READER": "token-of-reader"}
JOB: dict[str, Any] = {
    "service": {"strategy": "independent", "command": "train", "environment": {"API_KEY": "hidden"}},
    "secrets": [{"env": "KEY", "source": "file:ana/key"}],
    "job": {"id": "one"},
}


class Service:
    """A queue service with https; its jobs wait for a master."""

    def __init__(self, port: int, certificates: Certificates) -> None:
        self.url, self.certificates = f"https://127.0.0.1:{port}/v1", certificates

    def ask(self, who: str, method: str, path: str, body: Any = None) -> requests.Response:
        """Send a request with the token of a user, or with a certificate."""
        return requests.request(
            method,
            f"{self.url}/{path}",
            json=body,
            headers={"X-TensorFlow-Token": TOKENS[who]} if who in TOKENS else {},
            cert=None if who in TOKENS else self.certificates.pair(who),
            verify=self.certificates.ca,
            timeout=60,
        )


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Service]:
    """Users ana and ben have tokens, user `client` has a certificate."""
    folder = tmp_path_factory.mktemp("ml")
    certificate, key = certificates.pair("server")
    users = [{"name": "ana", "token": "env:ANA"}, {"name": "ben", "token": "env:BEN"}, {"name": "client"}]
    tls = {"certificate_file": certificate, "key_file": key, "client_ca_file": certificates.ca}
    document = {
        "service": {"name": "ml", "kind": "queue"},
        "mesos": {"master": "127.0.0.1:1"},
        "api": {"users": users, "write_token": "env:OPERATOR", "read_token": "env:READER", **tls},
        "scheduler": {"state": (folder / "state.db").as_uri()},
    }
    (folder / "queue.json").write_text(json.dumps(document))
    (port,) = free_ports(1)
    environment = scheduler_environment(port, MESOS_SANDBOX=str(folder), **TOKENS)
    process = start_scheduler(folder / "queue.json", environment, folder / "log")
    service = Service(port, certificates)
    try:
        wait_until(lambda: service.ask("READER", "GET", "jobs").ok, ignore=requests.ConnectionError)
        yield service
    finally:
        process.terminate()
        process.wait()
    log = (folder / "log").read_text()
    assert not [secret for secret in (*TOKENS.values(), "hidden") if secret in log]


def test_owner_and_operator_command_a_job(service: Service) -> None:
    submitted = service.ask("ANA", "POST", "jobs", JOB)
    assert (201, "ana") == (submitted.status_code, submitted.json()["owner"])
    kept = ("state", "since", "queue", "priority", "needs")
    before = [service.ask("ANA", "GET", "jobs/one").json()[name] for name in kept]
    requests_of_owner = [
        ("GET", "jobs/one/options", None),
        ("POST", "jobs/one/options", {**JOB, "worker": {"count": 3}}),
        ("POST", "jobs/one/move", {"priority": 7}),
        ("POST", "jobs/one/cancel", None),
    ]

    for who in ("BEN", "READER", "client"):
        for request in requests_of_owner:
            refused = service.ask(who, *request)
            assert (403, 403) == (refused.status_code, refused.json()["error"]["status"]), (who, request)
    assert before == [service.ask("BEN", "GET", "jobs/one").json()[name] for name in kept]
    for who in ("ANA", "OPERATOR"):
        shown = service.ask(who, "GET", "jobs/one/options")
        assert {"KEY"} == {secret["env"] for secret in shown.json()["secrets"]}
        assert "hidden" not in shown.text
        assert 200 == service.ask(who, "POST", "jobs/one/move", {"priority": 7}).status_code
    assert 7 == service.ask("BEN", "GET", "jobs/one").json()["priority"]
    cancelled = service.ask("ANA", "POST", "jobs/one/cancel")
    assert (202, "cancelled by ana") == (cancelled.status_code, cancelled.json()["reason"])


@pytest.mark.parametrize(
    ("who", "owner", "expected"),
    [
        ("ANA", "ben", (403, "only ana or the operator may submit this job")),
        ("client", "ana", (403, "only client or the operator may submit this job")),
        ("client", "client", (201, "client")),
        ("client", "", (201, "client")),
        ("OPERATOR", "ben", (201, "ben")),
        ("OPERATOR", "", (201, "operator")),
        ("READER", "", (403, "read access only")),
        ("other", "", (201, "other")),
    ],
)
def test_owner_is_who_submits(service: Service, who: str, owner: str, expected: tuple[int, str]) -> None:
    """An operator may submit for others; each certificate is a user's."""
    before = service.ask("BEN", "GET", "jobs").json()["jobs"]
    file = {"service": JOB["service"], "job": {"owner": owner} if owner else {}}
    answer = service.ask(who, "POST", "jobs", file)

    assert expected[0] == answer.status_code
    assert expected[1] in (answer.json()["owner"] if answer.ok else answer.json()["error"]["message"])
    after = service.ask("BEN", "GET", "jobs").json()["jobs"]
    assert int(answer.ok) == len(after) - len(before), "a refused job is not stored"


@pytest.mark.parametrize("body", [[], 5, "text", {"worker": {"count": -1}}, {"job": 5}])
@pytest.mark.parametrize("path", ["jobs", "jobs/two/options", "jobs/two/move"])
def test_invalid_body_is_refused(service: Service, path: str, body: Any) -> None:
    service.ask("ANA", "POST", "jobs", {"service": JOB["service"], "job": {"id": "two"}})
    refused = service.ask("ANA", "POST", path, body)

    assert (400, "bad_request") == (refused.status_code, refused.json()["error"]["code"])
    lines = refused.json()["error"]["message"].split("\n")
    assert len(lines) == len(set(lines)), "each problem is named once"
    assert "/v1/jobs/{job}/move" in service.ask("BEN", "GET", "openapi.json").json()["paths"]


def test_secrets_of_others_are_refused(service: Service) -> None:
    refused = service.ask("BEN", "POST", "jobs", JOB)

    assert (400, True) == (refused.status_code, "is not permitted to ben" in refused.text)
    assert "token or a certificate" in service.ask("BEN", "GET", "queue").json()["identities"]
    assert not any(token in json.dumps(service.ask("BEN", "GET", "queue").json()) for token in TOKENS.values())
