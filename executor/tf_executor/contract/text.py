"""Format numbers, durations, amounts, lists and sparklines for people."""

from __future__ import annotations

import math
from typing import Sequence, TypeVar

#: Shown for an unknown value.
UNKNOWN = "–"
#: Larger numbers have an exponent: tables stay readable if a task reports an absurd one.
LARGE = 1e9
#: From this number on the fraction is omitted.
_WITHOUT_FRACTION = 1000
#: Shorter durations have tenths of a second.
_WITH_TENTHS = 10
#: Share of its memory from which a task is near its limit.
_NEAR_LIMIT = 0.95
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_LEVELS = "▁▂▃▄▅▆▇█"

Item = TypeVar("Item")


def encodable(text: str) -> str:
    """Escape lone surrogates, which names of files and JSON may have and UTF-8 lacks."""
    return text.encode(errors="backslashreplace").decode()


def format_number(value: float | None) -> str:
    """Format a number as `12,345`, `0.0324` or, beyond `LARGE`, `1.235e+10`.

    Fractions have four significant digits.
    """
    if value is None:
        return UNKNOWN
    if _WITHOUT_FRACTION <= abs(value) <= LARGE:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def format_part(value: float | None, whole: float | None) -> str:
    """Format a count as `406 of 700`, or as `406` if the whole is unknown."""
    of = f" of {format_number(whole)}" if whole and value is not None else ""
    return f"{format_number(value)}{of}"


def format_loss(value: float | None, nan_since: int | None) -> str:
    """Format a loss, such as `0.0324`, or `nan since step 5` (the first NaN)."""
    number = "nan" if value is None and nan_since is not None else format_number(value)
    return number if nan_since is None else f"{number} since step {format_number(nan_since)}"


def format_rate(value: float | None, unit: str) -> str:
    """Format a speed, such as `0.0324 steps/s`."""
    return f"{format_number(value)} {unit}/s"


def format_percent(share: float) -> str:
    """Format a share from 0 to 1, such as `58 %`; `100 %` only for 1."""
    return f"{100 if share >= 1 else min(99, max(0, round(100 * share)))} %"


def format_duration(seconds: float | None) -> str:
    """Format seconds as `8.2 s`, `18 s`, `2 min 5 s`, `2 h 5 min` or `3 d 4 h`."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    whole = max(0, round(seconds))
    if 0 < seconds < _WITH_TENTHS and seconds != whole:
        return f"{seconds:.1f} s"
    for size, unit, smaller, rest in ((_DAY, "d", _HOUR, "h"), (_HOUR, "h", _MINUTE, "min"), (_MINUTE, "min", 1, "s")):
        if whole >= size:
            count = whole % size // smaller if whole < LARGE else 0
            return f"{format_number(whole // size)} {unit}" + (f" {count} {rest}" if count else "")
    return f"{whole} s"


def format_memory(megabytes: float) -> str:
    """Format MB of 2^20 bytes as `310 MB`, `0.98 GB` or `1.5 GB`."""
    if megabytes >= 1000:
        return f"{format_number(round(megabytes / 1024, 2))} GB"
    return f"{format_number(round(megabytes))} MB"


def format_memory_use(used: float, granted: float) -> str:
    """Format amounts in MB as `310 of 512 MB` or `930 MB of 1 GB`."""
    (number, unit), limit = format_memory(used).split(" "), format_memory(granted)
    return f"{number} of {limit}" if limit.endswith(unit) else f"{number} {unit} of {limit}"


def is_near_limit(used: float | None, granted: float) -> bool:
    """Return whether a task may soon be out of memory."""
    return used is not None and used >= _NEAR_LIMIT * granted


def format_resources(cpus: float, mem: float, gpus: float = 0, disk: float = 0) -> str:
    """Format resources, memory and disk in MB, as `0.5 cpus, 1 GB, 2 GPUs`."""
    parts = (
        f"{format_number(cpus)} cpus",
        format_memory(mem),
        pluralize(gpus, "GPU") if gpus else "",
        f"{format_memory(disk)} of disk" if disk else "",
    )
    return ", ".join(part for part in parts if part)


def format_size(count: float) -> str:
    """Format bytes as `310 bytes`, `1.5 kB` or `23.4 MB`, with powers of 1,000."""
    if count < 1000:
        return pluralize(round(count), "byte")
    for size, unit in ((1e9, "GB"), (1e6, "MB")):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count / 1e3:.1f} kB"


def pluralize(count: float, word: str) -> str:
    """Return a count with its noun, such as `1 task`, `2 tasks` or `2 ps`."""
    return f"{format_number(count)} {word}{'' if count == 1 or word.endswith('s') else 's'}"


def join_words(words: Sequence[str], conjunction: str = "and") -> str:
    """Return a list as text, such as `a, b and c`; empty without words."""
    *others, last = words or ("",)
    return f"{', '.join(others)} {conjunction} {last}" if others else last


def list_names(names: Sequence[str], limit: int = 3) -> str:
    """Return a text of up to `limit` parts: `worker-0, worker-1 and 4 others`."""
    return join_words(names if len(names) <= limit else [*names[: limit - 1], f"{len(names) - limit + 1} others"])


def downsample(items: Sequence[Item], limit: int) -> list[Item]:
    """Return up to `limit` evenly spaced items, first and last included (1: the last)."""
    if len(items) <= limit:
        return list(items)
    if limit < 2:
        return list(items[len(items) - limit :])
    return [items[round(index * (len(items) - 1) / (limit - 1))] for index in range(limit)]


def sparkline(values: Sequence[float | None], width: int) -> str:
    """Return up to `width` bars of evenly spaced finite values; the minimum is lowest."""
    finite = downsample([value for value in values if value is not None and math.isfinite(value)], width)
    if not finite:
        return ""
    low = min(finite)
    span = (max(finite) / 8 - low / 8) or 1.0  # each part divided: the difference may exceed the largest float
    return "".join(_LEVELS[min(7, int((value / 8 - low / 8) / span * 8))] for value in finite)


def printable(text: str) -> str:
    """Return the text in one line; write other characters as Python does."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
