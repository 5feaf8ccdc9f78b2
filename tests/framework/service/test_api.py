"""Access settings of the API, from options and environment."""

from pathlib import Path

import pytest

from tf_scheduler.api.http.auth import Policy
from tf_scheduler.errors import OptionsError
from tf_scheduler.options.load import resolve
from tf_scheduler.service.api import api_settings, uninstall_api_settings


def options(folder, api, master="10.0.0.1:5050"):
    sections = {"service": {"command": "x"}, "mesos": {"master": master}}
    return resolve({**sections, "api": api, "secret_delivery": {"directory": str(folder)}})


def settings(environment, folder="/nowhere", master="10.0.0.1:5050", **api):
    return api_settings(options(folder, api, master), environment)


@pytest.mark.parametrize("environment", [{"HOST": "127.0.0.1"}, {"HOST": "localhost"}])
def test_api_is_open_on_loopback(environment) -> None:
    policy = settings(environment).policy

    assert (False, None) == (policy.is_restricted, policy.find_writers)


MARATHON = {"HOST": "10.0.0.5", "MARATHON_APP_ID": "/tensorflow"}


def test_behind_marathon_only_masters_write_by_default() -> None:
    """Admin Router on the masters has authenticated the clients."""
    policy = settings(MARATHON, master="10.0.0.1:5050,10.0.0.2:5050").policy

    assert not policy.is_restricted
    assert policy.find_writers is not None
    assert {"10.0.0.1", "10.0.0.2"} == policy.find_writers()
    assert settings(MARATHON, authentication="none").policy.find_writers is None


@pytest.mark.parametrize("environment", [{}, {"HOST": "10.0.0.5"}, {"HOST": "agent-1"}])
def test_api_on_network_needs_explicit_access(environment) -> None:
    """The error names the missing option."""
    with pytest.raises(OptionsError, match=r"api.write_token.*required.*api.authentication: none"):
        settings(environment)
    assert not settings(environment, authentication="none").policy.is_restricted


def test_tokens_from_environment_and_files(tmp_path: Path) -> None:
    """Without the line break at the end of a file."""
    (tmp_path / "token").write_text("w\n")

    policy = settings({"READING": "r"}, tmp_path, read_token="env:READING", write_token="file:token").policy

    assert ("r", "w", False) == (policy.read_token, policy.write_token, policy.loopback_only)


@pytest.mark.parametrize(
    ("source", "message"),
    [("env:NONE", "missing variable"), ("file:none", "No such file"), ("env:EMPTY", "empty token")],
)
def test_missing_token_is_an_error(tmp_path: Path, source, message) -> None:
    """An empty token would refuse or admit all clients."""
    with pytest.raises(OptionsError, match=f"api.write_token.*{message}"):
        settings({"EMPTY": " \n"}, tmp_path, write_token=source)


def test_certificates_enable_https() -> None:
    access = settings({}, certificate_file="a.pem", key_file="a.key", client_ca_file="ca.pem", writers="alice, bob")

    assert ("a.pem", "a.key", "ca.pem") == (access.tls.certificate, access.tls.key, access.tls.client_ca)
    assert (True, {"alice", "bob"}) == (access.policy.client_certificates, access.policy.writers)


def last(environment, folder="/nowhere", *, closed=False, **api):
    return uninstall_api_settings(options(folder, api), environment, closed=closed)


def test_uninstall_with_missing_token_is_closed(tmp_path: Path) -> None:
    """Also where Marathon runs it. The uninstall itself continues."""
    behind = {"HOST": "10.0.0.5", "MARATHON_APP_ID": "/x", "R": "r"}
    settings, problems = last(behind, tmp_path, read_token="env:R", write_token="file:none")
    assert (["api.write_token"], "r") == ([problem.path for problem in problems], settings.policy.read_token)
    assert not settings.policy.authenticate({"authorization": "Bearer "}, None).can_read
    assert 43 == len(settings.policy.write_token)

    gone = {name: str(tmp_path / name) for name in ("certificate_file", "key_file", "client_ca_file")}
    settings, problems = last(behind, tmp_path, **gone)
    assert (["api.certificate_file"], None) == ([problem.path for problem in problems], settings.tls)
    assert (True, False) == (settings.policy.is_restricted, settings.policy.client_certificates)

    assert last(behind, closed=True)[0].policy.is_restricted
    assert last({"HOST": "10.0.0.5"})[0].policy.is_restricted
    assert (Policy(), []) == (last(behind)[0].policy, last(behind)[1])
