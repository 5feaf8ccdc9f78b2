"""Reports of the executor to the scheduler, as JSON in two `data` fields of Mesos.

`EndReport` travels in `TaskStatus.data` of the last update, `ProgressReport` and `UsageReport` in framework messages,
so that the scheduler need not parse messages for people. A malicious program can send all of them as its executor:
decoding never raises, and invalid values are ignored and logged. Standard library only, Python 3.8.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any, Callable, Mapping

#: Maximum bytes of a report; the executor sends a few hundred.
MAX_BYTES = 1 << 14
#: Maximum bytes of each output stream of a command, and of its file: JSON writes a character as up to six.
MAX_EXEC_OUTPUT = 1 << 19
MAX_EXEC_FILE = 12 * MAX_EXEC_OUTPUT + MAX_BYTES
#: Maximum count: larger ones do not fit into 64 bits.
MAX_COUNT = 2**63 - 1
_MAX_EXIT_CODE, _MAX_SIGNAL, _MAX_TEXT = 255, 64, 255
#: Maximum characters of an error.
MAX_ERROR = 1000
_NON_FINITE = ("nan", "inf", "-inf")
#: Maximum number of metrics of a report, and maximum characters of a name.
MAX_METRICS, MAX_METRIC_NAME = 16, 64
#: What a count of examples covers: one task, or the whole job.
EXAMPLES_OF = ("task", "job")
#: Origins of progress: the program's reports, TensorBoard event files, the program's output.
REPORT, EVENT_FILES, OUTPUT = "report", "event files", "output"

#: Incremented when an older scheduler would misread a message.
PROGRESS_VERSION = 1

#: Receives a message about ignored data; the message quotes none of the data.
OnProblem = Callable[[str], None]

#: Returns the value, or None if it is invalid.
Check = Callable[[Any], Any]


@dataclass(frozen=True)
class EndReport:
    """End of a program: `exit_code` or `signal`, or neither if it never started."""

    #: 0 to 255.
    exit_code: int | None = None
    #: Number of the signal that killed the program.
    signal: int | None = None
    #: True if the kernel killed a process of the task's container because it was out of memory.
    oom: bool | None = None
    #: Other stage that failed, such as `pre` or `post`.
    failed_stage: str | None = None
    #: True if another process listened on the task's port when the program ended.
    port_taken: bool | None = None
    #: True if the program was frozen: a process of the task was stopped by a signal, or blocked.
    frozen: bool | None = None
    #: First and last line of the exception with its place in the user's program, else the last line of stderr.
    error: str | None = None
    #: True if each launch would end in the same way: a missing module, a wrong flag, a command that does not exist.
    cannot_start: bool | None = None

    def encode(self) -> bytes:
        """Return the bytes for `TaskStatus.data` (before base64)."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None}).encode()

    @classmethod
    def decode(cls, data: bytes, on_problem: OnProblem = lambda _: None) -> EndReport:
        """Decode a report; empty for updates that the agent or master wrote. Never raises."""
        fields, invalid = _checked(_parsed(data, on_problem), _END_CHECKS)
        if invalid:
            on_problem(f"ignored invalid fields of an executor's end report: {', '.join(invalid)}")
        return cls(**fields)


NO_END = EndReport()


@dataclass(frozen=True)
class ProgressReport:
    """Progress of one launch; None: not reported."""

    #: Mesos task id of the launch.
    task_id: str
    #: Incremented for each report of the launch, to drop reports that arrive late.
    sequence: int
    #: Unix time on the agent's clock.
    time: float
    step: int | None = None
    #: Steps at the end of the training.
    total: int | None = None
    #: Infinite or NaN when the training diverges.
    loss: float | None = None
    #: Training examples processed.
    examples: int | None = None
    steps_per_second: float | None = None
    examples_per_second: float | None = None
    #: Unix time of the first step, if known from event files.
    begun: float | None = None
    epoch: int | None = None
    #: Epochs at the end of the training.
    epochs: int | None = None
    #: Estimated remaining seconds, at the mean speed since the first step.
    left: float | None = None
    #: What `examples` covers, one of EXAMPLES_OF.
    of: str | None = None
    #: Origin of the values: REPORT, EVENT_FILES or OUTPUT.
    source: str | None = None
    #: Name -> value of up to MAX_METRICS further metrics.
    metrics: Mapping[str, float] = field(default_factory=dict)
    #: Value of `step` when the program wrote its last checkpoint.
    saved_step: int | None = None
    #: Number of checkpoints that the program has written since its launch.
    saves: int | None = None
    #: Version of the last list of workers that the chief uses, and why it cannot use others.
    members: int | None = None
    members_error: str | None = None
    #: Why carried checkpoints are not stored; empty: they are stored again.
    storage_error: str | None = None

    def encode(self) -> bytes:
        """Return the bytes for a framework message (before base64): strict JSON."""
        return _message("progress", {**asdict(self), "metrics": self.metrics})

    @classmethod
    def decode(cls, data: bytes, on_problem: OnProblem = lambda _: None) -> ProgressReport | None:
        """Decode a report; None if invalid or of an unknown version. Never raises."""
        report = decode_message(data, on_problem)
        return report if isinstance(report, cls) else None


@dataclass(frozen=True)
class UsageReport:
    """Resources that the processes of one launch use; None: they have ended."""

    #: Mesos task id of the launch.
    task_id: str
    #: Largest resident memory so far, in MB of 2^20 bytes, as Mesos counts.
    memory_peak_mb: float
    memory_used_mb: float | None = None
    #: CPU seconds per second since the last report.
    cpus_used: float | None = None

    def encode(self) -> bytes:
        """Return the bytes for a framework message (before base64): strict JSON."""
        return _message("usage", asdict(self))


@dataclass(frozen=True)
class ExecReport:
    """End and output of a command that a user has run in a task (`ExecRequest`)."""

    #: 0 to 255; None: it was killed, or never ran.
    exit_code: int | None = None
    signal: int | None = None
    #: True if it was killed after its timeout.
    timed_out: bool | None = None
    #: True if it wrote more than MAX_EXEC_OUTPUT bytes to a stream, of which the first are kept.
    cut: bool | None = None
    #: Why the executor did not run it.
    error: str | None = None
    stdout: str | None = None
    stderr: str | None = None

    def encode(self) -> bytes:
        """Return the content of its file: strict JSON."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None}).encode()

    @classmethod
    def decode(cls, data: bytes) -> ExecReport | None:
        """Decode a file; None if the task's program has overwritten it. Never raises."""
        fields, invalid = _checked(_parsed(data, lambda _: None, MAX_EXEC_FILE), _EXEC_CHECKS)
        report = cls(**fields)
        return None if invalid or report == cls() else report


def decode_message(data: bytes, on_problem: OnProblem = lambda _: None) -> ProgressReport | UsageReport | None:
    """Decode a message; None if invalid or of an unknown version. Never raises."""
    values = _parsed(data, on_problem)
    kind = values.get("kind")
    if values.get("version") != PROGRESS_VERSION or kind not in ("progress", "usage"):
        return None
    is_progress = kind == "progress"
    fields, invalid = _checked(values, _PROGRESS_CHECKS if is_progress else _USAGE_CHECKS)
    required = ("task_id", "sequence", "time") if is_progress else ("task_id", "memory_peak_mb")
    invalid = [name for name in required if values.get(name) is None] + invalid
    if invalid:
        on_problem(f"ignored an executor's {kind} report with invalid or missing fields: {', '.join(invalid)}")
        return None
    return ProgressReport(**{**fields, "metrics": fields["metrics"] or {}}) if is_progress else UsageReport(**fields)


def _message(kind: str, values: Mapping[str, Any]) -> bytes:
    known = {name: _json_number(value) for name, value in values.items() if value is not None}
    return json.dumps({"version": PROGRESS_VERSION, "kind": kind, **known}, allow_nan=False).encode()


def is_metric_name(name: Any) -> bool:
    """Return whether `name` is a short printable text."""
    return _text(name, MAX_METRIC_NAME) is not None


def count(value: Any) -> int | None:
    """Return `value` if it is an integer of 64 bits, else None."""
    return _whole(value, -MAX_COUNT - 1, MAX_COUNT)


def finite(value: Any) -> float | None:
    """Return `value` if it is a finite number, else None."""
    real = _real(value)
    return None if real is None or not math.isfinite(real) else real


def _parsed(data: bytes, on_problem: OnProblem, max_bytes: int = MAX_BYTES) -> Mapping[str, Any]:
    """Parse a JSON object; empty if `data` is not one."""
    if not data:
        return {}
    try:
        values = json.loads(data) if len(data) <= max_bytes else None
    except (ValueError, RecursionError):
        values = None
    if isinstance(values, dict):
        return values
    on_problem(f"ignored {len(data)} bytes from an executor: not a JSON object")
    return {}


def _checked(values: Mapping[str, Any], checks: Mapping[str, Check]) -> tuple[dict[str, Any], list[str]]:
    """Return checked fields, None for missing and rejected ones, and rejected names."""
    present = {name: values[name] for name in checks if values.get(name) is not None}
    fields = {name: check(present[name]) if name in present else None for name, check in checks.items()}
    return fields, [name for name in present if fields[name] is None]


def _whole(value: Any, minimum: int, maximum: int) -> int | None:
    return value if type(value) is int and minimum <= value <= maximum else None


def _real(value: Any) -> float | None:
    if isinstance(value, float):
        return value
    whole = count(value)
    return None if whole is None else float(whole)


def _loss(value: Any) -> float | None:
    return float(value) if isinstance(value, str) and value in _NON_FINITE else _real(value)


def _text(value: Any, maximum: int = _MAX_TEXT) -> str | None:
    """Return a short printable text. A lone surrogate is not printable."""
    is_text = isinstance(value, str) and 0 < len(value) <= maximum and value.isprintable()
    return value if is_text else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


_END_CHECKS: Mapping[str, Check] = {
    "exit_code": lambda value: _whole(value, 0, _MAX_EXIT_CODE),
    "signal": lambda value: _whole(value, 1, _MAX_SIGNAL),
    "oom": _flag,
    "failed_stage": _text,
    "port_taken": _flag,
    "frozen": _flag,
    "error": lambda value: _text(value, MAX_ERROR),
    "cannot_start": _flag,
}
_EXEC_CHECKS: Mapping[str, Check] = {
    **{name: _END_CHECKS[name] for name in ("exit_code", "signal", "error")},
    **dict.fromkeys(("timed_out", "cut"), _flag),
    **dict.fromkeys(("stdout", "stderr"), lambda value: _output(value)),
}
_PROGRESS_CHECKS: Mapping[str, Check] = {
    "task_id": _text,
    "sequence": count,
    "time": finite,
    "step": count,
    "total": count,
    "loss": _loss,
    "examples": count,
    "steps_per_second": finite,
    "examples_per_second": finite,
    "begun": finite,
    "epoch": count,
    "epochs": count,
    "left": finite,
    "of": lambda value: value if value in EXAMPLES_OF else None,
    "source": lambda value: value if value in (REPORT, EVENT_FILES, OUTPUT) else None,
    "saved_step": count,
    "saves": count,
    "members": count,
    "members_error": lambda value: _text(value, MAX_ERROR),
    "storage_error": lambda value: value if value == "" else _text(value, MAX_ERROR),
    "metrics": lambda value: _metrics(value),
}
_USAGE_CHECKS: Mapping[str, Check] = {
    "task_id": _text,
    "memory_peak_mb": lambda value: _amount(value),
    "memory_used_mb": lambda value: _amount(value),
    "cpus_used": lambda value: _amount(value),
}


def _output(value: Any) -> str | None:
    return value if isinstance(value, str) and len(value) <= MAX_EXEC_OUTPUT else None


def _amount(value: Any) -> float | None:
    number = finite(value)
    return number if number is not None and 0 <= number <= MAX_COUNT else None


def _metrics(value: Any) -> dict[str, float] | None:
    """Return the valid metrics, or None if `value` is not an object."""
    if not isinstance(value, dict):
        return None
    checked = ((name, _loss(number)) for name, number in value.items() if is_metric_name(name))
    return dict([(name, number) for name, number in checked if number is not None][:MAX_METRICS])


def _json_number(value: Any) -> Any:
    """Return infinity and NaN as text, which JSON numbers cannot express."""
    if isinstance(value, Mapping):
        return {name: _json_number(item) for name, item in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
