"""For the user's program: tell how far it is. Never slows it down, never fails. Standard library only, Python 3.6.

The executor reads a named pipe, one JSON object a line: any language, a shell script too, can write to it:
`echo '{"step": 10}' > "$TF_EXECUTOR_PROGRESS"`.
"""

import atexit
import json
import os
import time
from typing import Any, Callable, Dict, Optional

#: Set by the executor: path of the named pipe.
PIPE = "TF_EXECUTOR_PROGRESS"
#: Seconds between two messages; what is reported meanwhile replaces what was reported before.
INTERVAL = 0.5
#: Linux writes so much to a pipe in one piece (pipe(7), PIPE_BUF).
_PIPE_BUF = 4096
#: Seconds of silence when nobody reads.
_PAUSE = 10.0


class Reporter:
    """Sends the newest values to the pipe, a few times a second at most."""

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._values = {}  # type: Dict[str, Any]
        self._unsent = False
        self._next = 0.0

    def report(self, values: Dict[str, Any]) -> None:
        """Remember `values`; send them if the last message is old enough."""
        self._values.update(values)
        self._unsent = True
        now = self._clock()
        if now >= self._next:
            self._next = now + INTERVAL
            self.flush()

    def flush(self) -> None:
        """Send what was not sent."""
        if not self._unsent:
            return
        self._unsent = False
        line = json.dumps({name: _number(value) for name, value in self._values.items()}).encode() + b"\n"
        if len(line) <= _PIPE_BUF:
            self._write(line)

    def _write(self, line: bytes) -> None:
        """Opened each time: nothing is left open, and a forked process shares nothing with us."""
        try:
            pipe = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            self._next = self._clock() + _PAUSE
            return
        try:
            os.write(pipe, line)
        except OSError:
            # Full: the executor is behind. The next message has newer values.
            self._unsent = True
        finally:
            os.close(pipe)


def _number(value: Any) -> Any:
    """Of numpy's and TensorFlow's numbers too; None for what is none."""
    if isinstance(value, int):
        return value
    try:
        return float(value)
    except Exception:  # somebody else's type: it may raise anything
        return None


_reporter = None  # type: Optional[Reporter]


def report(step: Any = None, total: Any = None, loss: Any = None, examples: Any = None) -> None:
    """Tell how far training is; call it as often as you like, from one thread.

    `step`: steps made so far. `total`: steps at the end of training. `loss`: now. `examples`: training examples seen
    so far. Leave out what you do not know. Values may be Python, numpy or TensorFlow numbers. Outside a task it does
    nothing.
    """
    try:
        reporter = _reporter or _start()
        if reporter is not None:
            given = {"step": step, "total": total, "loss": loss, "examples": examples}
            reporter.report({name: value for name, value in given.items() if value is not None})
    except Exception:  # a defect here must not end a training of days
        return


def _start() -> Optional[Reporter]:
    global _reporter
    if PIPE not in os.environ:
        return None
    _reporter = Reporter(os.environ[PIPE])
    atexit.register(_flush)
    return _reporter


def _flush() -> None:
    try:
        if _reporter is not None:
            _reporter.flush()
    except Exception:  # at the exit of somebody else's program
        return
