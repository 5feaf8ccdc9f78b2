"""How long to keep away after a round without success. Chance comes in as an argument."""

from __future__ import annotations

import zlib

#: Seconds: no back-off is shorter, for the master allocates once a second (Mesos flag --allocation_interval), and
#: offers that come back before all others are free again help nobody.
SHORTEST = 1.0
#: Seconds: the window that a back-off is drawn from grows no further.
LONGEST_WINDOW = 60.0


def chance(unique: str) -> float:
    """A number in [0, 1) from a unique id: ids are the only chance that the core knows."""
    return zlib.crc32(unique.encode()) / 2**32


def back_off(failures: int, hold_seconds: float, luck: float) -> float:
    """Seconds to keep away from offers after `failures` rounds without success.

    Two services that need the same agents, each holding a part of them, would part and meet again for ever if both
    waited equally long. Drawn at random from a window that doubles, one of them soon waits so much longer that the
    other finds everything free for a whole round. `luck` in [0, 1).
    """
    window = min(LONGEST_WINDOW, max(SHORTEST, hold_seconds) * 2.0 ** min(failures - 1, 16))
    return SHORTEST + luck * window
