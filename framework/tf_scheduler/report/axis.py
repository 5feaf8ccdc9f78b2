"""Round numbers along an axis. Pure."""

from __future__ import annotations

import math

_STEPS = (1.0, 2.0, 5.0, 10.0)
_TIMES = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Some round numbers from `low` to `high`."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low] if math.isfinite(low) else []
    rough = (high - low) / about
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in _STEPS if size * factor >= rough)
    first = math.ceil(low / step)
    return [round(place * step, 12) for place in range(first, math.floor(high / step) + 1)]


def times(length: float, about: int = 6) -> list[float]:
    """Seconds from 0 on that people count in."""
    step = next((size for size in _TIMES if size * about >= length), 86400 * math.ceil(length / 86400 / about))
    return [float(second) for second in range(0, math.floor(length) + 1, int(step))]


def clock(value: float) -> str:
    """`45 s`, `2:05`, `1:02:05`."""
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"
