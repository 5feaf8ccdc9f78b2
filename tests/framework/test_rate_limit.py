"""Keys of clients in the rate limiter."""

import pytest

from tf_scheduler.rate_limit import client_key


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
def test_client_key_of_ipv6_is_its_site(address: str, network: str) -> None:
    """One machine may use all addresses of its site, so they share a bucket."""
    assert network == client_key(address)
