"""The last lines of a program's output, fit for a status message: short, on one line, without secrets. Pure."""

from __future__ import annotations

import re
from typing import Iterable, Sequence

#: Bytes of each in the message. Mesos keeps messages in the master's memory and shows them in tables.
STDERR_BYTES, STDOUT_BYTES = 400, 200
MASK = "***"
#: Shorter values would mask half of every text and protect nothing.
_LEAST_SECRET = 4
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
#: How Python marks a place in the line above.
_POINTERS = re.compile(r"[\^~ ]+")
_JOINT = " | "
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def last_words(stderr: bytes, stdout: bytes, secrets: Iterable[str], cut_off: int) -> str:
    """`; stderr: ... | ...; stdout: ...`, or empty. A stream of at least `cut_off` bytes has lost its beginning."""
    values = [secret for secret in secrets if len(secret) >= _LEAST_SECRET]
    shown = [
        (name, excerpt(data, values, size, len(data) >= cut_off))
        for name, data, size in (("stderr", stderr, STDERR_BYTES), ("stdout", stdout, STDOUT_BYTES))
    ]
    return "".join(f"; {name}: {text}" for name, text in shown if text)


def excerpt(data: bytes, secrets: Sequence[str], size: int, beginning_lost: bool) -> str:
    """The last lines of `data`, at most `size` bytes, joined by ` | `."""
    text = mask(data.decode("utf-8", "replace"), secrets)
    if beginning_lost:
        text = _without_broken_start(text, secrets)
    lines = [_plain(line) for line in text.split("\n")]
    return _last_bytes(_JOINT.join(line for line in lines if line and not _POINTERS.fullmatch(line)), size)


def mask(text: str, secrets: Sequence[str]) -> str:
    """Each of `secrets` replaced, the longest first; one of several lines also where only one of its lines stands."""
    parts = {part for secret in secrets for part in (secret, *secret.splitlines())}
    for part in sorted(parts, key=len, reverse=True):
        if len(part) >= _LEAST_SECRET:
            text = text.replace(part, MASK)
    return text


def _without_broken_start(text: str, secrets: Sequence[str]) -> str:
    """The first line may begin inside a secret, which then was not recognised."""
    first, newline, rest = text.partition("\n")
    return rest if newline else first[max(map(len, secrets), default=0) :]


def _plain(line: str) -> str:
    """As a terminal would show it in the end: the text after the last carriage return, without colours."""
    shown = _ESCAPES.sub("", line).rstrip("\r").rpartition("\r")[2]
    return _UNSEEN.sub("", shown).strip()


def _last_bytes(text: str, size: int) -> str:
    data = text.encode()
    if len(data) <= size:
        return text
    kept = data[len(data) + 3 - size :].decode("utf-8", "ignore")
    # A whole line to begin with, where that does not cost much.
    _part, joint, rest = kept.partition(_JOINT)
    return "..." + (rest if joint and len(rest) > len(kept) // 2 else kept)
