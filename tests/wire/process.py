"""Start wire.client and exchange lines with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from wire.peer import EXECUTOR_ID, FRAMEWORK_ID, PATIENCE

ROOT = Path(__file__).resolve().parents[2]
FRAMEWORK = {"name": "f", "user": "u", "roles": ["r"], "capabilities": [{"type": "MULTI_ROLE"}]}
ENVIRON = {
    "MESOS_FRAMEWORK_ID": FRAMEWORK_ID["value"],
    "MESOS_EXECUTOR_ID": EXECUTOR_ID["value"],
    "MESOS_CHECKPOINT": "1",
    "MESOS_RECOVERY_TIMEOUT": "15mins",
    "MESOS_SUBSCRIPTION_BACKOFF_MAX": "200ms",
}


class ClientProcess:
    """Context manager that stops the process."""

    def __init__(self, role: str, address: str, **options: Any) -> None:
        options.setdefault(
            "framework" if role == "scheduler" else "environ", FRAMEWORK if role == "scheduler" else ENVIRON
        )
        path = os.pathsep.join(str(ROOT / name) for name in ("tests", "framework"))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "wire.client", role, address, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path, **options.get("process_environ", {})},
        )
        self._changed = threading.Condition()
        self.lines: list[dict[str, Any]] = []
        self.errors = ""
        self._ended = False
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> ClientProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join(PATIENCE)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):  # the program did not read the last command
                pipe.close()

    def do(self, command: str, *arguments: Any) -> dict[str, Any]:
        """Run a command and return its line."""
        before = len(self.found(did=command))
        self.ask(command, *arguments)
        return self.wait(before + 1, did=command)

    def ask(self, command: str, *arguments: Any) -> None:
        """Run a command without waiting for it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([command, *arguments]) + "\n")
        self._process.stdin.flush()

    def found(self, **wanted: Any) -> list[dict[str, Any]]:
        return [line for line in list(self.lines) if all(line.get(key) == value for key, value in wanted.items())]

    def wait(self, count: int = 1, **wanted: Any) -> dict[str, Any]:
        """Wait for the `count`-th line with these entries."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or len(self.found(**wanted)) >= count, PATIENCE)
            assert len(self.found(**wanted)) >= count, f"no {wanted} in {self.lines}\n{self.errors}"
            return self.found(**wanted)[count - 1]

    def wait_event(self, kind: str, count: int = 1) -> dict[str, Any]:
        """Wait for the `count`-th raw event of that type."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._ended or len(self.events(kind)) >= count, PATIENCE)
            assert len(self.events(kind)) >= count, f"no {kind} in {self.lines}\n{self.errors}"
            return self.events(kind)[count - 1]

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [line["event"] for line in list(self.lines) if line.get("event", {}).get("type") == kind]

    def finish(self) -> int:
        """Wait for the program to exit; return its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self.wait_exit()

    def wait_exit(self) -> int:
        code = self._process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        return code

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self.lines.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.errors += line
