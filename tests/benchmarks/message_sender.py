"""A master that only sends, in a process of its own: message_sender.py FILE RATE

Prints its address. After a line of input it sends the lines of the file, RATE per second.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from wire.peer import Peer, stream, subscribed


@contextmanager
def a_master(path: Path, rate: float = float("inf")) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield a master's address, and the function that lets it send the events."""
    command = [sys.executable, "-m", "benchmarks.message_sender", str(path), str(rate)]
    folder = Path(__file__).parents[1]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        assert process.stdout
        try:
            yield process.stdout.readline().strip(), lambda: print(file=process.stdin, flush=True)
        finally:
            process.kill()


def main(path: str, rate: str) -> None:
    events = [json.loads(line) for line in Path(path).read_text().splitlines()]
    with Peer(stream(subscribed())) as peer:
        print(peer.address, flush=True)
        sys.stdin.readline()
        begun = time.monotonic()
        for number, event in enumerate(events):
            time.sleep(max(0.0, begun + number / float(rate) - time.monotonic()))
            peer.push(event)
        sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
