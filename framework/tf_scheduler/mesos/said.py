"""What executors and agents say in their own words, in the model's types: bounded, and without what does harm.

A malicious program may speak to its agent as the executor: nothing here raises, whatever comes.
"""

from __future__ import annotations

import base64
import logging
import math
import re
from typing import Any

from tf_executor.reports import MOST_BYTES

#: Characters of a message; ours have a few hundred, an agent's may quote its fetcher.
MOST_TEXT = 8192
_CUT = " ..."

log = logging.getLogger(__name__)

#: What terminals obey, what turns lines round, and halves of surrogate pairs, which nothing can store.
_HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def ignored(sentence: str) -> None:
    """Tell the operator: what is ours is never ignored."""
    log.warning("%s", sentence)


def text(value: Any) -> str:
    """At most `MOST_TEXT` characters, harmful ones shown as U+FFFD; empty when it is no text."""
    if not isinstance(value, str):
        return ""
    whole = value if len(value) <= MOST_TEXT else value[: MOST_TEXT - len(_CUT)] + _CUT
    return _HARMFUL.sub("\ufffd", whole)


def data(value: Any) -> bytes:
    """What is in a field of bytes, which is base64; empty when it is none, cut when it is longer than any of ours."""
    if not isinstance(value, str):
        return b""
    try:
        return base64.b64decode(value[:_BASE64_BYTES])
    except ValueError:
        return b""


def time(value: Any) -> float:
    """Seconds since the epoch; 0 when it is no finite number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LAST_SECOND
    return float(value) if is_number and math.isfinite(value) else 0.0


#: Room for one byte more than `reports` takes, so that it sees that there are more. Of four characters each.
_BASE64_BYTES = (MOST_BYTES // 3 + 1) * 4
#: The end of the year 9999, the last that Python can write as a date.
_LAST_SECOND = 253_402_300_800
