"""Library for user programs to report progress. Its calls never block or fail.

Python 3.6. The executor reads JSON lines from a named pipe, which any language can write:
`echo '{"step": 10}' > "$TF_EXECUTOR_PROGRESS"`.
"""

import atexit
import json
import os
import time
from typing import Any, Callable, Dict, Optional

#: Variable with the path of the named pipe.
PIPE_VARIABLE = "TF_EXECUTOR_PROGRESS"
#: Key of a line about carried checkpoints: why they are not stored, or an empty text.
STORAGE_KEY = "_storage"
#: Key of a chief's answer to a list of workers: its number.
MEMBERS_KEY = "_members"
#: Key of a line about a checkpoint that a restart can use: when the program wrote it (time.monotonic).
SAVED_KEY = "_saved"
#: Minimum seconds between two messages; later values replace earlier ones.
INTERVAL = 0.5
#: Maximum bytes of an atomic write to a pipe (pipe(7), PIPE_BUF).
_PIPE_BUF = 4096
#: Seconds to pause when the pipe has no reader.
_PAUSE = 10.0
#: Maximum number of metrics, and maximum characters of a name (`contract.reports`); number of other values.
_MAX_METRICS, _MAX_NAME, _FIELDS = 16, 64, 8
#: Key of the time of a report (time.monotonic), which may be sent later.
_TIME = "_time"


class Reporter:
    """Send the newest values to the pipe, at a limited rate."""

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._values = {}  # type: Dict[str, Any]
        self._unsent = False
        self._next = 0.0

    def report(self, values: Dict[str, Any]) -> None:
        """Merge `values`; send them if the last message is old enough."""
        for name, value in values.items():
            if name in self._values or (len(self._values) < _FIELDS + _MAX_METRICS and len(name) <= _MAX_NAME):
                self._values[name] = value
        self._unsent = True
        now = self._values[_TIME] = self._clock()
        if now >= self._next:
            self._next = now + INTERVAL
            self.flush()

    def flush(self) -> None:
        """Send unsent values."""
        if not self._unsent:
            return
        self._unsent = False
        line = (
            json.dumps(
                {name: value if name == "of" else _number(value) for name, value in self._values.items()}
            ).encode()
            + b"\n"
        )
        if len(line) <= _PIPE_BUF:
            self.send(line)

    def send(self, line: bytes) -> None:
        """Send a line. Open the pipe each time: forked processes share no descriptor."""
        try:
            pipe = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            self._next = self._clock() + _PAUSE
            return
        try:
            os.write(pipe, line)
        except OSError:
            # The pipe is full; the next message will have newer values.
            self._unsent = True
        finally:
            os.close(pipe)


def send(values: Dict[str, Any]) -> None:
    """Send a message of the executor's own modules, without merging it with others."""
    if PIPE_VARIABLE in os.environ:
        Reporter(os.environ[PIPE_VARIABLE]).send(json.dumps(values).encode() + b"\n")


def _number(value: Any) -> Any:
    """Convert Python, numpy and TensorFlow numbers; None for other values."""
    if isinstance(value, int):
        return value
    try:
        return float(value)
    except Exception:  # conversions of other types raise any exception
        return None


_reporter = None  # type: Optional[Reporter]


def report(
    step: Any = None,
    total: Any = None,
    loss: Any = None,
    examples: Any = None,
    of: str = "task",
    epoch: Any = None,
    epochs: Any = None,
    **metrics: Any,
) -> None:
    """Report training progress; cheap enough to call after each step, from one thread.

    `step`: steps done. `total`: steps of the whole training. `loss`: current loss. `examples`: training examples
    processed. `of`: "task" if `examples` counts this task's examples (the tasks are added up), "job" if it counts those
    of the whole job. `epoch`: current epoch, from 1. `epochs`: epochs of the whole training. `metrics`: up to 16 more
    values, such as `accuracy=0.98`. All are optional Python, numpy or TensorFlow numbers. Does nothing outside a task.
    """
    try:
        reporter = _reporter or _start()
        if reporter is not None:
            values = {
                "step": step,
                "total": total,
                "loss": loss,
                "examples": examples,
                "epoch": epoch,
                "epochs": epochs,
            }
            values.update(metrics, of=None if examples is None else str(of))
            reporter.report({name: value for name, value in values.items() if value is not None})
    except Exception:  # a bug here must not stop the training
        return


def _start() -> Optional[Reporter]:
    global _reporter
    if PIPE_VARIABLE not in os.environ:
        return None
    _reporter = Reporter(os.environ[PIPE_VARIABLE])
    atexit.register(_flush)
    return _reporter


def _flush() -> None:
    try:
        if _reporter is not None:
            _reporter.flush()
    except Exception:  # must not disturb the program's exit
        return
