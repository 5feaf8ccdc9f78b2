"""Token-bucket rate limiter with one bucket per client."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

#: Tokens of a full bucket, and seconds until one is refilled. The executor's own retries are less frequent.
BURST, REFILL_SECONDS = 30.0, 5.0
#: Buckets that are kept. A client with more addresses evicts buckets, which are full when they come back.
_MAX_BUCKETS = 10_000
#: Prefix of one IPv6 site; its machines choose the other bits themselves (RFC 4291).
_SITE_PREFIX = 64


def client_key(address: str) -> str:
    """Return the IPv4 address, or the /64 network of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _SITE_PREFIX), strict=False))


@dataclass(slots=True)
class RateLimiter:
    """One token bucket per client. Thread-safe."""

    clock: Callable[[], float] = time.monotonic
    max_buckets: int = _MAX_BUCKETS
    #: Client -> (tokens, time of the last request), least recently used first.
    _buckets: OrderedDict[Hashable, tuple[float, float]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def acquire(self, client: Hashable) -> bool:
        """Return whether the client may send a request now; a refusal costs no token."""
        now = self.clock()
        with self._lock:
            tokens, last = self._buckets.pop(client, (BURST, now))
            tokens = min(BURST, tokens + (now - last) / REFILL_SECONDS)
            self._buckets[client] = (tokens - 1.0 if tokens >= 1.0 else tokens, now)
            if len(self._buckets) > self.max_buckets:
                self._buckets.popitem(last=False)
        return tokens >= 1.0
