"""Reports of the executor to the scheduler as JSON, and their texts for people.

`TaskEnd` travels in `TaskStatus.data` of the last update, `Progress` and `Usage` in framework messages, `ExecReport` in
a file. So the scheduler need not parse messages for people. A malicious program can send any report in its executor's
name. So decoding never raises, and invalid values are ignored and logged. Standard library only, Python 3.8.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Callable, Iterable, Mapping, Optional

from .advice import CRASH_HINTS
from .text import format_duration, format_loss, format_number, format_part, format_percent, format_rate, pluralize

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
#: Returns a value as text.
Form = Callable[[Any], str]


# --- checks


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
    """Return `value` if it is a short printable text (no lone surrogate), else None."""
    is_text = isinstance(value, str) and 0 < len(value) <= maximum and value.isprintable()
    return value if is_text else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _output(value: Any) -> str | None:
    return value if isinstance(value, str) and len(value) <= MAX_EXEC_OUTPUT else None


def _amount(value: Any) -> float | None:
    number = finite(value)
    return number if number is not None and 0 <= number <= MAX_COUNT else None


def _metrics(value: Any) -> dict[str, float] | None:
    """Return the valid metrics, or None if `value` is not an object.

    A metric that is null is NaN or infinite, because JSON lacks these numbers (`strict_json`).
    """
    if not isinstance(value, dict):
        return None
    numbers = ((name, math.nan if number is None else number) for name, number in value.items())
    checked = ((name, _loss(number)) for name, number in numbers if is_metric_name(name))
    return dict([(name, number) for name, number in checked if number is not None][:MAX_METRICS])


# --- reports


@dataclass(frozen=True)
class TaskEnd:
    """How a program ended: `exit_code` or `signal`; neither if it never started."""

    #: 0 to 255.
    exit_code: int | None = None
    #: Number of the signal that killed the program.
    signal: int | None = None
    #: Whether the kernel killed a process of the task's container because it was out of memory.
    out_of_memory: bool = False
    #: Stage of the launch that failed instead of the program, such as `fetch` or `pre`; empty for none.
    failed_stage: str = ""
    #: Whether the program could not start, or its server, because another process uses a port of the task.
    port_taken: bool = False
    #: Whether processes of the task were stopped by a signal, or blocked, when the program ended.
    was_frozen: bool = False
    #: First and last line of the exception with its place in the user's program, else the last line of stderr.
    error: str = ""
    #: Whether each launch would end in the same way: a missing module, a wrong flag, a command that does not exist.
    cannot_start: bool = False
    #: Whether the program trained without its peers: it used its library, but had no connection to one of them.
    alone: bool = False

    @property
    def crash(self) -> int | None:
        """Signal that the program raised, also as a shell's exit code 128 + N; or None."""
        number = self.signal if self.exit_code is None else self.exit_code - 128
        return number if number in CRASH_HINTS else None

    @property
    def lacks_port(self) -> bool:
        """Whether the program could start, but another process has the task's port."""
        return self.port_taken and not self.cannot_start

    def to_json(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults."""
        values = {each.name: (getattr(self, each.name), each.default) for each in fields(self)}
        return {name: value for name, (value, default) in values.items() if value != default}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], on_problem: OnProblem = lambda _: None) -> TaskEnd:
        """Return the valid fields of a JSON object. Never raises."""
        valid, invalid = _checked(values, _END_CHECKS)
        if invalid:
            on_problem(f"ignored invalid fields of an executor's end report: {', '.join(invalid)}")
        return cls(**valid)

    def encode(self) -> bytes:
        """Return the bytes for `TaskStatus.data` (before base64)."""
        return json.dumps(self.to_json()).encode()

    @classmethod
    def decode(cls, data: bytes, on_problem: OnProblem = lambda _: None) -> TaskEnd:
        """Decode a report; empty for updates that the agent or master wrote. Never raises."""
        return cls.from_json(_parsed(data, on_problem), on_problem)


NO_END = TaskEnd()


def _reported(check: Check, label: str = "", form: Form = str, metric: str = "", about: str = "") -> Any:
    """Make a field of `Progress`; the parameters are explained in `ProgressField`."""
    return field(default=None, metadata={"shown": (check, label, form, metric, about)})


@dataclass(frozen=True)
class Progress:
    """Training progress of one launch; may be incomplete. None: not reported."""

    #: Incremented for each report of the launch, to drop reports that arrive late.
    sequence: int = 0
    #: Unix time on the agent's clock.
    time: float = 0.0
    step: int | None = _reported(count, "step", format_number, "training_step", "Current training step.")
    #: Steps at the end of the training.
    total: int | None = _reported(
        count, metric="training_total_steps", about="Total training steps reported by the program."
    )
    #: Infinite or NaN when the training diverges.
    loss: float | None = _reported(
        _loss,
        "loss",
        format_number,
        "training_loss",
        "Last reported loss; may be NaN or infinite.",
    )
    #: Training examples processed since the start of the training.
    examples: int | None = _reported(
        count,
        metric="training_examples",
        about="Examples processed since the start of the training.",
    )
    steps_per_second: float | None = _reported(
        finite,
        "steps a second",
        format_number,
        "training_steps_per_second",
        "Training steps per second.",
    )
    examples_per_second: float | None = _reported(
        finite,
        "examples a second",
        format_number,
        "training_examples_per_second",
        "Training examples per second.",
    )
    #: Unix time of the first step, if known from event files.
    begun: float | None = _reported(finite)
    epoch: int | None = _reported(count, metric="training_epoch", about="Current epoch, if the program reports it.")
    #: Epochs at the end of the training.
    epochs: int | None = _reported(count)
    #: Estimated remaining seconds, at the mean speed since the first step.
    seconds_left: float | None = _reported(
        finite,
        "time left",
        format_duration,
        "training_seconds_left",
        "Estimated seconds until the end of the training.",
    )
    #: What `examples` covers: `task`, or `job`, whose examples count once; None: the task.
    of: str | None = _reported(lambda value: value if value in EXAMPLES_OF else None)
    #: Origin of the values: `report`, `event files` or `output`; None: the program has reported nothing.
    source: str | None = _reported(lambda value: value if value in (REPORT, EVENT_FILES, OUTPUT) else None)
    #: Name -> value of up to 16 further metrics.
    metrics: Mapping[str, float] = field(default_factory=dict)
    #: First step of this launch: low if the program has not restored a checkpoint.
    first_step: int | None = _reported(count)
    #: Value of `step` when the program wrote its last checkpoint.
    saved_step: int | None = _reported(count)
    #: Number of checkpoints that the program has written since its launch.
    saves: int | None = _reported(count)
    #: Version of the last list of workers that the chief uses, and why it cannot use others.
    members: int | None = _reported(count)
    members_error: str | None = _reported(lambda value: _text(value, MAX_ERROR))
    #: Why carried checkpoints are not stored; empty: they are stored again.
    storage_error: str | None = _reported(lambda value: value if value == "" else _text(value, MAX_ERROR))
    #: Workers that trained then, as the scheduler counts them; only in the curve of the leading task.
    workers: int | None = _reported(count)
    #: Step at which the loss became NaN or infinite; None: it is finite, or the step is unknown.
    nan_since: int | None = _reported(count)

    @property
    def position(self) -> int | None:
        """The step; the epoch of a program that reports no steps."""
        return self.epoch if self.step is None else self.step

    @property
    def expected_end(self) -> float | None:
        """Unix time of the end of the training; None: unknown."""
        return None if self.seconds_left is None else self.time + self.seconds_left

    @property
    def unsaved_seconds(self) -> float | None:
        """Seconds of training since the last checkpoint; None: unknown."""
        if self.step is None or not self.steps_per_second:
            return None
        return max(0, self.step - (self.saved_step or 0)) / self.steps_per_second

    def without_speed(self) -> Progress:
        """Return the report for a time at which its speed no longer holds."""
        return replace(self, steps_per_second=None, examples_per_second=None, seconds_left=None)

    def has_begun_again(self, saved_step: int | None) -> bool:
        """Whether the program began before half of the last checkpoint's step."""
        return self.first_step is not None and 2 * self.first_step < (saved_step or 0)

    def describe_continuation(self, saved_step: int | None) -> str:
        """Return where a launch continued after a checkpoint of `saved_step`."""
        first, saved = format_number(self.first_step), format_number(saved_step)
        if self.has_begun_again(saved_step):
            return f"the program did not restore its checkpoint of step {saved}, and began again at step {first}"
        if self.first_step is not None:
            return f"continued at step {first}"
        return "" if saved_step is None else f"its last checkpoint is of step {saved} or later"

    @property
    def is_of_training(self) -> bool:
        """Whether the program has reported values; False if only the executor has."""
        others = (self.members, self.storage_error, self.saves)
        return self.source is not None or all(value is None for value in others)

    def encode(self, task_id: str) -> bytes:
        """Return the bytes for a framework message (before base64): strict JSON."""
        return _message("progress", task_id, {**asdict(self), "metrics": self.metrics})

    def to_json(self, names: Iterable[str]) -> dict[str, Any]:
        """Return values `names` and the metrics as JSON; null if unknown or not finite."""
        values = {name: getattr(self, name) for name in names}
        return {**strict_json(values), "metrics": strict_json(self.metrics)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Progress:
        """Read the valid fields of an API body or a stored value."""
        return cls(**_checked(values, _PROGRESS_CHECKS)[0])


def note_nan(values: dict[str, Any], step: float | None) -> None:
    """Keep the `step` at which the loss became NaN or infinite, until it is finite."""
    if math.isfinite(values.get("loss", 0.0)):
        values.pop("nan_since", None)
    elif step is not None:
        values.setdefault("nan_since", step)


def drop_other_count(curve: list[Progress], point: Progress) -> None:
    """Remove printed points at a curve's end if `point` shows that they differ.

    A relaunched program may print its own count of steps before it reports.
    """
    end = len(curve)
    while end and point.source not in (None, OUTPUT) and curve[end - 1].source in (None, OUTPUT):
        end -= 1
    if 0 < end < len(curve) and (point.source == REPORT or (curve[end].step or 0) < (curve[end - 1].step or 0)):
        del curve[end:]


@dataclass(frozen=True)
class ProgressField:
    """How a field of `Progress` is checked and shown."""

    name: str
    #: Type of its JSON.
    kind: Any
    check: Check
    #: Heading; empty: it is not shown on its own.
    label: str
    form: Form
    #: Name and description of its metric for Prometheus; empty: none.
    metric: str
    about: str


#: Types of JSON by the annotation of a field: Python 3.8 cannot evaluate these annotations.
_KINDS: Mapping[str, Any] = {
    "int | None": Optional[int],
    "float | None": Optional[float],
    "str | None": Optional[str],
}
#: Fields that a report may omit, in the order in which they are shown.
PROGRESS_FIELDS = tuple(
    ProgressField(each.name, _KINDS[str(each.type)], *each.metadata["shown"])
    for each in fields(Progress)
    if "shown" in each.metadata
)
#: Fields of a report, in addition to metrics; those of them that the points of a stored curve have.
REPORT_FIELDS = ("time", *(each.name for each in PROGRESS_FIELDS))
CURVE_FIELDS = ("time", "step", "epoch", "loss", "steps_per_second", "workers")
#: Metrics in a sentence about the training.
_METRICS_IN_SENTENCE = 3


def progress_texts(progress: Progress) -> dict[str, str]:
    """Return label -> text of each value that is shown on its own, metrics included."""
    texts = {}
    for item in (each for each in PROGRESS_FIELDS if each.label):
        texts[item.label] = item.form(getattr(progress, item.name))
        if item.name == "step":
            texts[item.label] = format_step(progress)
        if item.name == "loss":
            texts[item.label] = format_loss(progress.loss, progress.nan_since)
            texts.update((name, format_number(number)) for name, number in progress.metrics.items())
    return texts


def format_step(progress: Progress, *, has_unit: bool = False) -> str:
    """Return `406 of 700`, with unit `step 406 of 700`; without steps `epoch 3 of 10`."""
    if progress.step is None and progress.epoch is not None:
        return f"epoch {format_part(progress.epoch, progress.epochs)}"
    return f"{'step ' * has_unit}{format_part(progress.step, progress.total)}"


def describe_progress(progress: Progress, examples_per_second: float | None = None) -> str:
    """Return a text such as `step 406 of 700, 58 %, loss 0.03, 18 s left`.

    `examples_per_second`: speed of the whole job; None: use the task's own.
    """
    step, total, left = progress.step, progress.total, progress.seconds_left
    epoch = "" if step is None or progress.epoch is None else f"epoch {format_part(progress.epoch, progress.epochs)}"
    metrics = list(progress.metrics.items())[:_METRICS_IN_SENTENCE]
    examples = progress.examples_per_second if examples_per_second is None else examples_per_second
    parts = [
        "" if progress.position is None else format_step(progress, has_unit=True),
        "" if step is None or not total else format_percent(step / total),
        epoch,
        "" if progress.loss is progress.nan_since is None else f"loss {format_loss(progress.loss, progress.nan_since)}",
        *(f"{name} {format_number(value)}" for name, value in metrics),
        "" if progress.steps_per_second is None else format_rate(progress.steps_per_second, "steps"),
        "" if examples is None else format_rate(examples, "examples"),
        "" if left is None else f"{format_duration(left)} left",
    ]
    return ", ".join(part for part in parts if part)


def describe_restart_loss(step: int | None, saved_step: int | None) -> str:
    """Return what a restart loses, to append to a sentence; empty without steps."""
    if step is None:
        return ""
    if saved_step is None:
        return f", at step {format_number(step)}; what it has not saved is lost"
    lost = max(0, step - saved_step)
    return f"; {pluralize(lost, 'step')} since its last checkpoint {'is' if lost == 1 else 'are'} lost"


@dataclass(frozen=True)
class Usage:
    """Resources that the processes of a launch use; None: the processes have ended."""

    #: Largest resident memory so far, in MB of 2^20 bytes, as Mesos counts.
    memory_peak_mb: float
    memory_used_mb: float | None = None
    #: CPU seconds per second since the last report.
    cpus_used: float | None = None

    def encode(self, task_id: str) -> bytes:
        """Return the bytes for a framework message (before base64): strict JSON."""
        return _message("usage", task_id, asdict(self))


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
        """Return the content of the result file: strict JSON."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None}).encode()

    @classmethod
    def decode(cls, data: bytes) -> ExecReport | None:
        """Decode a result file; None if the program has overwritten it. Never raises."""
        valid, invalid = _checked(_parsed(data, lambda _: None, MAX_EXEC_FILE), _EXEC_CHECKS)
        report = cls(**valid)
        return None if invalid or report == cls() else report


@dataclass(frozen=True)
class Message:
    """What an executor reports about one launch while its program runs."""

    #: Mesos task id of the launch.
    task_id: str
    report: Progress | Usage


def decode_message(data: bytes, on_problem: OnProblem = lambda _: None) -> Message | None:
    """Decode a message; None if invalid or of an unknown version. Never raises."""
    values = _parsed(data, on_problem)
    kind = values.get("kind")
    if values.get("version") != PROGRESS_VERSION or kind not in ("progress", "usage"):
        return None
    is_progress = kind == "progress"
    valid, invalid = _checked(values, _MESSAGE_CHECKS if is_progress else _USAGE_CHECKS)
    required = ("task_id", "sequence", "time") if is_progress else ("task_id", "memory_peak_mb")
    invalid = [name for name in required if values.get(name) is None] + invalid
    if invalid:
        on_problem(f"ignored an executor's {kind} report with invalid or missing fields: {', '.join(invalid)}")
        return None
    task_id = valid.pop("task_id")
    return Message(task_id, Progress(**valid) if is_progress else Usage(**valid))


def _message(kind: str, task_id: str, values: Mapping[str, Any]) -> bytes:
    present = {name: json_number(value) for name, value in values.items() if value is not None}
    content = {"version": PROGRESS_VERSION, "kind": kind, "task_id": task_id, **present}
    return json.dumps(content, allow_nan=False).encode()


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
    """Return the valid fields, and the names of the invalid ones."""
    checked = {name: check(values[name]) for name, check in checks.items() if values.get(name) is not None}
    valid = {name: value for name, value in checked.items() if value is not None}
    return valid, [name for name in checked if name not in valid]


_END_CHECKS: Mapping[str, Check] = {
    "exit_code": lambda value: _whole(value, 0, _MAX_EXIT_CODE),
    "signal": lambda value: _whole(value, 1, _MAX_SIGNAL),
    "out_of_memory": _flag,
    "failed_stage": _text,
    "port_taken": _flag,
    "was_frozen": _flag,
    "error": lambda value: _text(value, MAX_ERROR),
    "cannot_start": _flag,
    "alone": _flag,
}
_EXEC_CHECKS: Mapping[str, Check] = {
    **{name: _END_CHECKS[name] for name in ("exit_code", "signal", "error")},
    **dict.fromkeys(("timed_out", "cut"), _flag),
    **dict.fromkeys(("stdout", "stderr"), _output),
}
_PROGRESS_CHECKS: Mapping[str, Check] = {
    "sequence": count,
    "time": finite,
    **{each.name: each.check for each in PROGRESS_FIELDS},
    "metrics": _metrics,
}
#: The scheduler counts the workers itself.
_MESSAGE_CHECKS = {"task_id": _text, **{name: check for name, check in _PROGRESS_CHECKS.items() if name != "workers"}}
_USAGE_CHECKS: Mapping[str, Check] = {
    "task_id": _text,
    "memory_peak_mb": _amount,
    "memory_used_mb": _amount,
    "cpus_used": _amount,
}


def strict_json(value: Any) -> Any:
    """Replace infinities and NaN, which JSON does not have, by null."""
    if isinstance(value, Mapping):
        return {name: strict_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [strict_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_number(value: Any) -> Any:
    """Replace infinities and NaN, which JSON lacks, by texts, which are read back."""
    if isinstance(value, Mapping):
        return {name: json_number(item) for name, item in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
