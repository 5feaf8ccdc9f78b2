"""Parsing of masters, durations and the agent's environment."""

from __future__ import annotations

import pytest

from mesos_client.executor import AgentEnvironment, parse_duration
from mesos_client.masters import MasterList, parse_masters

ENVIRON = {"MESOS_AGENT_ENDPOINT": "10.0.0.1:5051", "MESOS_FRAMEWORK_ID": "f", "MESOS_EXECUTOR_ID": "e"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("leader.mesos", ["http://leader.mesos:5050"]),
        ("10.0.0.1:80", ["http://10.0.0.1:80"]),
        ("[::1]:5050", ["http://[::1]:5050"]),
        ("https://m:1/ignored", ["https://m:1"]),
        ("a, b:1 ,", ["http://a:5050", "http://b:1"]),
    ],
)
def test_master_list_is_parsed(text, expected) -> None:
    """Host names, ports, IPv6, TLS and lists."""
    assert expected == list(parse_masters(text))


@pytest.mark.parametrize(
    "text",
    ["", ",", "host:port", "ftp://host:1", "host:99999999", "zk://z:2181/mesos", "http://:1", "http://me:hush@host:1"],
)
def test_invalid_masters_are_rejected(text) -> None:
    """The error says what is expected."""
    with pytest.raises(ValueError, match="master") as caught:
        parse_masters(text)
    assert "hush" not in str(caught.value)


def test_a_leader_is_followed_until_it_fails() -> None:
    """After the leader's failure the listed masters are tried in turn."""
    masters = MasterList(parse_masters("a,b"))
    masters.follow("http://a:5050", "//c:5050/api/v1/scheduler")
    assert masters.current == "http://c:5050"
    masters.failed("http://c:5050")
    assert masters.current == "http://a:5050"
    masters.failed("http://a:5050")
    assert masters.current == "http://b:5050"


def test_redirect_without_scheme_keeps_scheme() -> None:
    """Mesos leaves the scheme out of Location."""
    masters = MasterList(parse_masters("https://a:1"))
    masters.follow("https://a:1", "//b:2/x")
    assert masters.current == "https://b:2"


def test_empty_master_list_has_no_current() -> None:
    """A detector may report that no master leads."""
    masters = MasterList(parse_masters("a"))
    masters.replace(())
    assert not masters.failed("http://a:5050")
    assert masters.current is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5secs", 5),
        ("15mins", 900),
        ("250ms", 0.25),
        ("1.5hrs", 5400),
        ("2days", 172800),
        ("1weeks", 604800),
        ("7ns", 7e-9),
    ],
)
def test_durations_are_parsed(text, expected) -> None:
    """As Mesos writes them."""
    assert expected == pytest.approx(parse_duration(text))


@pytest.mark.parametrize("text", ["", "5", "secs", "5 fortnights", "-1secs", "1e3secs"])
def test_invalid_durations_are_rejected(text) -> None:
    """The error names the units."""
    with pytest.raises(ValueError, match="weeks"):
        parse_duration(text)


def test_agent_environment_is_parsed() -> None:
    """P10: "0" is false; durations have Mesos' defaults when they are not set."""
    read = AgentEnvironment.read({**ENVIRON, "MESOS_CHECKPOINT": "0"})
    assert AgentEnvironment("http://10.0.0.1:5051", "f", "e", False, 900.0, 2.0, 5.0, None) == read
    assert AgentEnvironment.read({**ENVIRON, "MESOS_CHECKPOINT": "1", "MESOS_RECOVERY_TIMEOUT": "10secs"}).checkpoint


def test_token_is_not_in_repr() -> None:
    """A log line with the environment in it does not hold the token."""
    read = AgentEnvironment.read({**ENVIRON, "MESOS_EXECUTOR_AUTHENTICATION_TOKEN": "t0ken"})
    assert read.token == "t0ken"
    assert "t0ken" not in repr(read)


@pytest.mark.parametrize("name", sorted(ENVIRON))
def test_a_missing_variable_is_named(name) -> None:
    """The program was not started by an agent."""
    with pytest.raises(ValueError, match=name):
        AgentEnvironment.read({key: value for key, value in ENVIRON.items() if key != name})


def test_a_bad_duration_is_named_with_its_variable() -> None:
    """The variable and the units are in the error."""
    with pytest.raises(ValueError, match=r"MESOS_RECOVERY_TIMEOUT.*weeks"):
        AgentEnvironment.read({**ENVIRON, "MESOS_RECOVERY_TIMEOUT": "soon"})
