"""Whom a request counts for."""

import pytest

from tf_scheduler.allowance import network_of
from tf_scheduler.api.clients import line_of
from tf_scheduler.api.policy import Policy

CLOSED = Policy(read_token="r", write_token="w", certificates=True)


def a_request(address="10.1.2.3", peer=None, **headers):
    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "client": (address, 1), "headers": given, "state": {"peer": peer}}


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("", ""),
        ("a socket", "a socket"),
    ],
)
def test_a_network_of_one_site_is_one_client(address, network):
    """Its machines choose the rest of an IPv6 address as they like."""
    assert network == network_of(address)


def test_what_can_be_made_up_divides_only_the_turns_of_ones_own_address():
    """The address comes first, then what was shown and verified, then what a header says."""
    liar = [line_of(a_request(authorization=f"Bearer {n}", x_forwarded_for=f"{n}"), CLOSED) for n in "abc"]

    assert 1 == len({line[:2] for line in liar})
    assert line_of(a_request("10.9.9.9"), CLOSED)[0] != liar[0][0]
    for shown in ({"authorization": "Bearer w"}, {"authorization": "Bearer r"}, {"peer": "alice"}):
        assert liar[0][1] != line_of(a_request(**shown), CLOSED)[1]


def test_of_those_that_proxies_name_the_last_counts():
    """The nearest proxy has added it; what stands before it may be the client's own."""
    lines = [line_of(a_request(x_forwarded_for=names), CLOSED) for names in ("1.1.1.1", "9.9.9.9, 1.1.1.1", "1.1.1.2")]

    assert lines[0] == lines[1] != lines[2]
