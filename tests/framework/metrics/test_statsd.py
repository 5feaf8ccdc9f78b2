"""StatsD client: packets, target, errors."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metered_world import a_life
from tf_scheduler.metrics.statsd import MAX_PACKET, MAX_VALUES, StatsdSender, StatsdTarget, packets, statsd_target

DCOS = {"STATSD_UDP_HOST": "198.51.100.1", "STATSD_UDP_PORT": "61825"}
VALUES = st.lists(st.tuples(st.text(min_size=1, max_size=600), st.floats()), max_size=50)


@given(VALUES)
def test_packets_are_bounded_and_contain_gauges(values) -> None:
    """Whatever the names contain; NaN and infinities are omitted."""
    sent = list(packets(values, "digits."))

    assert all(0 < len(packet) <= MAX_PACKET for packet in sent)
    for line in b"\n".join(sent).decode().splitlines():
        name, _, rest = line.partition(":")
        assert name.startswith("digits.")
        value, _, kind = rest.partition("|")
        assert ("g", float(value)) == (kind, float(value))


def test_negative_value_is_set_not_subtracted() -> None:
    """StatsD adds a signed value to the gauge."""
    assert [b"plan_status.deploy:0|g\nplan_status.deploy:-1|g"] == list(packets([("plan_status.deploy", -1)]))


def test_number_of_values_is_limited() -> None:
    lines = b"\n".join(packets((f"n{number}", number) for number in range(2 * MAX_VALUES))).splitlines()

    assert MAX_VALUES == len(lines)


@pytest.mark.parametrize(
    ("option", "environment", "expected"),
    [
        ("", {}, None),
        ("", DCOS, StatsdTarget("198.51.100.1", 61825)),
        ("", {**DCOS, "STATSD_POLL_INTERVAL_S": "30"}, StatsdTarget("198.51.100.1", 61825, 30.0)),
        ("", {**DCOS, "STATSD_UDP_PORT": "none"}, None),
        ("host:8125", DCOS, StatsdTarget("host", 8125, prefix="dev.digits.")),
        ("[::1]:8125", {}, StatsdTarget("::1", 8125, prefix="dev.digits.")),
    ],
)
def test_option_overrides_environment(option, environment, expected) -> None:
    """The option's server may serve several services, so names begin with the service."""
    assert expected == statsd_target(option, "/dev/digits", environment)


def test_server_receives_all_values() -> None:
    """A real server, over UDP."""
    world = a_life()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)
        wanted = {b"offers.received", b"plan_status.deploy", b"tensorflow_training_step.worker-0.worker"}
        StatsdSender(StatsdTarget(*server.getsockname())).send(world.meter.values())
        while wanted:
            wanted -= {line.partition(b":")[0] for line in server.recv(65_536).splitlines()}


def test_unknown_server_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    sender = StatsdSender(StatsdTarget("host.invalid", 8125))

    for _ in range(3):
        sender.send([("one", 1)])

    assert 1 == len(caplog.messages)
    assert caplog.messages[0].startswith("cannot send metrics to host.invalid:8125: ")
