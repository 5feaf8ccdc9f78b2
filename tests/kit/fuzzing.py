"""Send random input to a part of the product.

FUZZ_ROUNDS=300 pytest -k fuzz -s    runs 150 times as many rounds
FUZZ_SEED=42 pytest -k ...           begins with the seed that a failure printed
"""

from __future__ import annotations

import copy
import io
import json
import os
import secrets
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisDeprecationWarning

from tf_scheduler.cli.main import main

#: Rounds of each fuzzer: a limit in seconds would try less on a busy machine.
ROUNDS = int(os.environ.get("FUZZ_ROUNDS", "2"))
#: Seconds that the product may take for one input on a busy machine.
PATIENCE = 20.0

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["", "0", "-1", "1e308", "../..", "\0", "\ud800", "\x1b]52;c;cm0=\x07", "7" * 5000, 2**63, -1])
)
#: Any JSON, also with numbers and texts that are valid JSON but rarely expected.
JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def fuzz(
    check: Callable[[Any], None], inputs: st.SearchStrategy[Any], examples: int = 50, *, shrink: bool = True
) -> None:
    """Call `check` with random inputs, in ROUNDS rounds of `examples`.

    Each round has a seed, which a failure prints. Fails if an input takes longer than PATIENCE. Without `shrink`, a
    failing input is not made smaller, which takes minutes if the product starts a process for each.
    """
    first = int(os.environ.get("FUZZ_SEED", secrets.randbelow(1 << 32)))
    inputs_seen = 0

    def checked(value: Any) -> None:
        nonlocal inputs_seen
        inputs_seen += 1
        with _limit():
            check(value)

    for number in range(first, first + ROUNDS):
        # No database: only the seed decides which inputs a round has.
        rules = settings(
            max_examples=examples,
            database=None,
            deadline=None,
            phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )
        try:
            with warnings.catch_warnings():
                # Threads of the product use `random` while Hypothesis draws.
                warnings.simplefilter("ignore", HypothesisDeprecationWarning)
                seed(number)(rules(given(inputs)(checked)))()
        except BaseException:
            print(f"repeat this round with FUZZ_SEED={number}")
            raise
    print(f"{inputs_seen} inputs, seeds {first} to {first + ROUNDS - 1}")


@contextmanager
def _limit() -> Iterator[None]:
    """Raise TimeoutError in a block that takes longer than PATIENCE."""

    def too_long(*_: object) -> None:
        raise TimeoutError(f"an input takes longer than {PATIENCE:g} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --- inputs


@st.composite
def changed(draw: st.DrawFn, document: Any, values: st.SearchStrategy[Any] = JSON) -> Any:
    """The JSON document with up to three entries removed, replaced or added."""
    root = [copy.deepcopy(document)]
    for _ in range(draw(st.integers(1, 3))):
        parent, key = draw(st.sampled_from(list(_entries(root))))
        action = draw(st.sampled_from(["replace", "remove", "add"])) if parent is not root else "replace"
        if action == "replace":
            parent[key] = copy.deepcopy(draw(values))
        elif action == "remove":
            del parent[key]
        elif isinstance(parent, dict):
            parent[draw(st.text(max_size=8))] = copy.deepcopy(draw(values))
        else:
            parent.insert(key, copy.deepcopy(draw(values)))
    return root[0]


def _entries(node: Any) -> Iterator[tuple[Any, Any]]:
    for key, child in node.items() if isinstance(node, dict) else enumerate(node):
        yield node, key
        if isinstance(child, dict | list):
            yield from _entries(child)


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """The bytes after up to four changes: replaced, inserted, cut, repeated."""
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        to = draw(st.integers(at, min(len(data), at + 40)))
        pieces = st.binary(max_size=8) | st.sampled_from([b"", bytes(data[at:to]) * 200, *_NASTY])
        data[at:to] = draw(pieces)
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 9)) == 0 else data)


_NASTY = [
    b"[" * 20_000,
    b'{"a":' * 20_000,
    b"<a>" * 20_000,
    b"\n - " * 2_000,
    b"7" * 6_000,
    b"1e999",
    b"NaN",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\\ud800",
    b"&a *a",
    b"!!python/object:os.system",
    b"<!DOCTYPE a>",
    b"&#0;",
    b"\0",
    b"\xef\xbb\xbf",
]
#: Any bytes, and bytes that parsers of text dislike.
BYTES = st.binary(max_size=200) | st.lists(st.sampled_from(_NASTY), max_size=4).map(b"".join)


def as_json(document: Any) -> bytes:
    """JSON as programs write it; lone surrogates are escaped."""
    return json.dumps(document).encode()


# --- the command


class Outcome(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


def call_main(*arguments: object) -> Outcome:
    """Run `dcos-tensorflow ARGUMENTS` in this process.

    An exception is what a user sees as a traceback. The output is encoded as strictly as for a terminal in UTF-8.
    """
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", "strict", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True)
    code = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return Outcome(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))


def assert_explained(outcome: Outcome) -> None:
    """A command that fails exits with 1, 2 or 3, and prints why."""
    assert outcome.code in (0, 1, 2, 3), outcome
    assert outcome.code == 0 or outcome.out.strip() or outcome.err.strip(), outcome
    assert "Traceback" not in outcome.err, outcome
