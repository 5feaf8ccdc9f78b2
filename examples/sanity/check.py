"""Check that every task of the cluster reaches every other. The default program of a service; needs no TensorFlow.

Each task listens at its own address of TF_CONFIG and connects to all others. Worker 0 (or the chief) exits when it has
reached all of them and all have reported the same to it; then the job is done.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import sys
import threading
import time

PATIENCE = float(os.environ.get("SANITY_PATIENCE", "300"))  # seconds


class Answer(socketserver.BaseRequestHandler):
    """Answers whether this task has reached all others."""

    def handle(self) -> None:
        self.request.sendall(b"done\n" if self.server.done.is_set() else b"here\n")


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True

    def __init__(self, port: int) -> None:
        self.done = threading.Event()
        super().__init__(("", port), Answer)


def ask(address: str) -> str:
    """Return `here`, `done`, or an empty string without an answer."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            return connection.makefile().readline().strip()
    except OSError:
        return ""


def wait_for(addresses: dict[str, str], answers: tuple[str, ...]) -> None:
    """Wait until each task has given one of the answers; exit 1 after the timeout."""
    end = time.monotonic() + PATIENCE
    left = dict(addresses)
    while left:
        left = {name: address for name, address in left.items() if ask(address) not in answers}
        if left and time.monotonic() > end:
            sys.exit(f"not reached after {PATIENCE:.0f} s: {', '.join(f'{n} at {a}' for n, a in left.items())}")
        time.sleep(0.2 if left else 0)


def main() -> None:
    config = json.loads(os.environ["TF_CONFIG"])
    job, index = config["task"]["type"], config["task"]["index"]
    tasks = {f"{kind}-{i}": address for kind, listed in config["cluster"].items() for i, address in enumerate(listed)}
    own = tasks.pop(f"{job}-{index}")
    server = Server(int(own.rpartition(":")[2]))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"{job}-{index} at {own} looks for {', '.join(tasks) or 'no other task'}", flush=True)
    wait_for(tasks, ("here", "done"))
    server.done.set()
    print("all reached", flush=True)
    leads = job == "chief" or (job == "worker" and index == 0 and "chief" not in config["cluster"])
    if not leads:
        threading.Event().wait()  # the others may still ask; the scheduler ends us with the job
    wait_for(tasks, ("done",))
    print(f"the cluster of {len(tasks) + 1} tasks is sound", flush=True)


if __name__ == "__main__":
    main()
