"""How often somebody may ask, and who counts as one: each has a bucket, and none uses up another's."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

#: Questions at once, and seconds until the next one after that: an executor's own retries are not more frequent.
AT_ONCE, SECONDS_EACH = 30.0, 5.0
#: Buckets that are kept. Whoever has more addresses than that empties nobody's but forgets their own.
_MOST = 10_000
#: Bits of an IPv6 address that are given to one site; the rest its machines choose themselves.
_SITE = 64


def network_of(address: str) -> str:
    """The address; of IPv6 its network, for a client may have as many addresses in it as it likes."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, _SITE), strict=False))


@dataclass(slots=True)
class Allowance:
    """Safe for threads."""

    clock: Callable[[], float] = time.monotonic
    most: int = _MOST
    #: Who -> (what was left, when), the longest unused first.
    _left: OrderedDict[Hashable, tuple[float, float]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, who: Hashable) -> bool:
        """Whether they may ask now; a question that may not be asked costs nothing."""
        now = self.clock()
        with self._lock:
            left, at = self._left.pop(who, (AT_ONCE, now))
            left = min(AT_ONCE, left + (now - at) / SECONDS_EACH)
            self._left[who] = (left - 1.0 if left >= 1.0 else left, now)
            if len(self._left) > self.most:
                self._left.popitem(last=False)
        return left >= 1.0
