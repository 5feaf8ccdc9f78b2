"""Find messages and errors in the last bytes of a program's output."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Iterable, Mapping, Sequence

from tf_executor.contract.advice import (
    CRASH_HINTS,
    KERAS_2,
    KERAS_2_STRATEGIES,
    hint_of,
    ignored_keras_2,
    keras_3_problem,
    missing_command,
    missing_keras_2,
)

from .output import TAIL_BYTES
from .tree import read_proc

# Excerpt: the last lines for a status message, short and without secrets.

#: Maximum bytes of each stream. Mesos keeps messages in the master's memory and shows them in tables.
STDERR_BYTES, STDOUT_BYTES = 400, 200
REDACTED = "***"
#: Shorter secrets are not redacted: they would hide half of every text.
_MIN_SECRET = 4
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
#: Python's markers below a line of a traceback.
_MARKERS = re.compile(r"[\^~ ]+")
_SEPARATOR = " | "
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def output_excerpt(stderr: bytes, stdout: bytes, secrets: Iterable[str], cut_off: int, sandbox: str = "/") -> str:
    """Return `; stderr: ... | ...; stdout: ...`, or an empty string.

    Streams of `cut_off` bytes or more are assumed to be truncated at the beginning. Paths in `sandbox` become relative.
    """
    values = [secret for secret in secrets if len(secret) >= _MIN_SECRET]
    excerpts = [
        (name, excerpt(data, values, size, len(data) >= cut_off, sandbox))
        for name, data, size in (("stderr", stderr, STDERR_BYTES), ("stdout", stdout, STDOUT_BYTES))
    ]
    return "".join(f"; {name}: {text}" for name, text in excerpts if text)


def excerpt(data: bytes, secrets: Sequence[str], size: int, is_truncated: bool, sandbox: str = "/") -> str:
    """Return the last lines of `data`, up to `size` bytes, joined by ` | `."""
    folder = _inside(sandbox)
    lines = (folder.sub("", line.strip()) for line in _displayed_lines(data, secrets, is_truncated))
    repeats = (
        (line, len(list(group))) for line, group in groupby(line for line in lines if not _MARKERS.fullmatch(line))
    )
    text = _SEPARATOR.join(f"{line} ({n} times)" if n > 1 else line for line, n in repeats)
    encoded = text.encode()
    if len(encoded) <= size:
        return text
    end = encoded[len(encoded) + 3 - size :].decode("utf-8", "ignore")
    # Begin with a complete line if that keeps more than half.
    _part, separator, rest = end.partition(_SEPARATOR)
    return "..." + (rest if separator and len(rest) > len(end) // 2 else end)


def _inside(sandbox: str) -> re.Pattern[str]:
    """Return a pattern for the part that all paths in the sandbox begin with."""
    paths = {path.rstrip("/") for path in (sandbox, os.path.realpath(sandbox))}
    return re.compile("|".join(rf"(?<![\w.-]){re.escape(path)}/" for path in paths if path) or "(?!)")


def _displayed_lines(data: bytes, secrets: Sequence[str], is_truncated: bool, start: bytes = b"") -> list[str]:
    """Return the lines as a terminal displays them, without blank lines.

    `start`: output before `data`, with a gap between them that may divide a secret.
    """
    text, margin = redact(data.decode("utf-8", "replace"), secrets), max(map(len, secrets), default=0)
    if start:
        before = redact(start.decode("utf-8", "replace"), secrets)
        text = f"{before[: len(before) - margin]} ... {text[margin:]}"
    elif is_truncated:
        # The first line may begin inside a secret that was not recognised.
        first, newline, rest = text.partition("\n")
        text = rest if newline else first[margin:]
    return [visible for line in text.split("\n") if (visible := _as_displayed(line))]


def redact(text: str, secrets: Sequence[str]) -> str:
    """Replace secrets, and the lines of multi-line secrets, the longest first."""
    parts = {part for secret in secrets for part in (secret, *secret.splitlines())}
    for part in sorted(parts, key=len, reverse=True):
        if len(part) >= _MIN_SECRET:
            text = text.replace(part, REDACTED)
    return text


def _as_displayed(line: str) -> str:
    """Return the line as a terminal displays it: no colours, no overwritten text."""
    visible = _ESCAPES.sub("", line).rstrip("\r").rpartition("\r")[2]
    return _CONTROL.sub("", visible).rstrip()


def storage_reason(stderr: bytes) -> bytes:
    """Return the last message of `user.storage`; skip the lines of TensorFlow."""
    return next((line for line in reversed(stderr.split(b"\n")) if line.startswith(b"storage: ")), b"")


# Error: what ended a program, for people, and for the scheduler to compare the ends of launches.

#: Maximum characters of the first and of the last line of an exception, and of a path.
_LINE_CHARACTERS, _PATH_CHARACTERS = 400, 100
_HEADER = "Traceback (most recent call last):"
_FRAME = re.compile(r'  File "(.+)", line (\d+)')
#: Tracebacks of finalizers do not end a program.
_IGNORED = "Exception ignored "
#: torchrun's own exception, which follows that of the program, and its report of the first process that failed.
_LAUNCHER = "torch.distributed.elastic."
_ROOT_CAUSE = re.compile(
    r"Root Cause .*?\n  rank +: (\d+) .*?\n  exitcode +: (?:-(\d+)|(\d+)) \(pid: \d+\) *(\(\w+\))?", re.S
)
#: Files of Python, of installed packages, of torchrun, of AutoGraph (with random names) and of the executor: not the
#: user's program.
_LIBRARY = re.compile(
    r"/(site|dist)-packages/|/lib/python[\d.]+/|/bin/torchrun$|^<frozen |/__autograph_generated_file|/\.tf_executor/"
)
#: Lines of loggers (logging, glog), which may follow a traceback.
_LOGGED = re.compile(r"\d{4}-\d\d-\d\d |[IWE]\d{4,8} ")
#: Marks of torchrun and PyTorch before a line of a process.
_RANK = re.compile(r"\[rank\d+\]: ?")
#: Several numbers, such as the content of a tensor.
_NUMBERS = re.compile(r"(?<![\d.])(?:[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?[\s,;\[\]]+){3,}[-+]?\d[\d.e+-]*")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
#: The module of an exception, and TensorFlow's name of an operation.
_MODULE, _NODE = re.compile(r"^(?:[a-z_]\w*\.)+(?=_?[A-Z]\w*: )"), re.compile(r"\{\{function_node [^}]*\}\} ?")
#: First line of TensorFlow's errors in graphs, without the reason.
_IN_GRAPH = re.compile(r"(?<=Error: )(Graph execution error:|\d+ root error\(s\) found\.)$")
#: Lines around the reason: where the operation was defined, its node, its server, other errors.
_GRAPH_DETAIL = re.compile(
    r"\s*(File |\[\[)|\s{4}|Detected at node|<stack traces |Node: |\d+ root error|Additional GRPC|:?\{|:UNKNOWN:"
)
#: Parts of the line with the reason: number and code of an error, node, operation.
_GRAPH_PART = re.compile(r"^\s+\(\d+\) [A-Za-z_ ]+: +|\s*\[\[\{\{node .*|\s*\[Op:\w+\].*")
#: Last lines that do not say what is wrong: of a logger, with nothing but a node, or without any word.
_NO_REASON = re.compile(rf"{_LOGGED.pattern}|\s*\[\[(\{{\{{node|\w+\]\])|\W+$")
#: Ends of programs that another launch does not change.
_NEVER_STARTS = re.compile(r"(ModuleNotFoundError|ImportError|SyntaxError|IndentationError|TabError|NameError)\b")
#: A shell's messages: `sh: 1: x: not found`, `bash: line 1: x: command not found`, `sh: 1: x: Permission denied`.
_SHELL = re.compile(r"(?:^|: )([^:]+): (?:command )?(not found|Permission denied|No such file.*)$")
#: A meaning of exit codes 126 and 127, which a shell's message repeats.
_SHELL_HINT = re.compile(r" \(command not [a-z]+\)")
#: Exit codes: of a shell without a command, of a parser of arguments, of Python after an exception, perhaps SIGABRT.
_NO_COMMAND, _USAGE_ERROR, _EXCEPTION_CODES = (126, 127), 2, (1, 128 + signal.SIGABRT)
#: Error of a silent program, so that the scheduler can compare two of its ends.
_NO_OUTPUT = "no output"


@dataclass(frozen=True)
class ProgramError:
    """What ended a program, according to its output."""

    #: Such as `ModuleNotFoundError: No module named 'x' (train.py:3)`, or `no output`; empty: not examined.
    text: str = ""
    #: Whether the text says what is wrong: an exception, a wrong flag or command; otherwise it is the last line.
    is_cause: bool = False
    #: Whether each launch would end in the same way.
    cannot_start: bool = False
    #: What to do; empty if unknown.
    hint: str = ""
    #: Whether another process uses the task's port, which the program needs.
    port_taken: bool = False
    #: Signal that killed a process of torchrun, which itself exits with a code.
    signal: int | None = None

    def message(self, end: str, excerpt: str) -> str:
        """Return the message of a failure.

        `end`: such as `exit code 1`; `excerpt`: see output_excerpt.
        """
        hint = f"{HINT}{self.hint}" if self.hint else ""
        return f"{self.text}, {_SHELL_HINT.sub('', end)}{hint}" if self.is_cause else f"{end}{excerpt}{hint}"


#: Between a failure and what to do about it, in messages.
HINT = "; hint: "


def program_error(
    exit_code: int,
    output: bytes,
    secrets: Iterable[str],
    sandbox: str,
    variables: Mapping[str, str],
    traceback: bytes = b"",
) -> ProgramError:
    """Return the error with which a program ended.

    Args:
        output: Last bytes of stderr, or of stdout if the program wrote only to stdout.
        variables: Environment of the program.
        traceback: First bytes of a traceback that is too long for `output`.
    """
    values = [secret for secret in secrets if len(secret) >= _MIN_SECRET]
    displayed = _displayed_lines(output, values, len(output) >= TAIL_BYTES, traceback)
    lines = [_RANK.sub("", line, 1) for line in displayed]
    if not lines:
        return ProgramError(_NO_OUTPUT, cannot_start=exit_code in _NO_COMMAND)
    if exit_code in _NO_COMMAND and (message := _SHELL.search(lines[-1])):
        return _missing_command(message[1], message[2], variables)
    first, end, frame = _exception(lines)
    if _LAUNCHER in lines[first] and (cause := _ROOT_CAUSE.search("\n".join(lines[first:end]))):
        rank, number, code, name = cause.groups()
        how = f"was killed by signal {number} {name or ''}".rstrip() if number else f"exited with code {code}"
        return ProgramError(f"rank {rank} {how}", is_cause=True, signal=int(number) if number else None)
    sentences, folder = _sentences(lines[first:end]), _inside(sandbox)
    texts = [_folded(folder.sub("", text.strip())) for text in dict.fromkeys(sentences)]
    place = f"{folder.sub('', frame[1])[-_PATH_CHARACTERS:]}:{frame[2]}" if frame else ""
    text = " ... ".join(texts) + (f" ({place})" if place else "")
    text = "".join(character if character.isprintable() else " " for character in text)
    if exit_code in _EXCEPTION_CODES and (_HEADER in lines or frame):
        if sentence := _keras_sentence(lines, lines[first:end], frame, variables):
            return ProgramError(f"{place}: {sentence}" if place else sentence, is_cause=True, cannot_start=True)
        never = sentences[-1] == lines[first] and _NEVER_STARTS.match(lines[first]) is not None
        return ProgramError(text, is_cause=True, cannot_start=never, hint=hint_of("\n".join(lines[first:end])))
    # Of the program's argument parser, or of Python.
    refuses = "can't open file" in lines[-1] or any(line.lower().startswith("usage:") for line in lines)
    is_usage = exit_code == _USAGE_ERROR and refuses
    return ProgramError(text, is_usage, is_usage or exit_code in _NO_COMMAND, hint_of("\n".join(lines)))


# Known causes.

#: Instruction sets that builds of TensorFlow and PyTorch use.
_INSTRUCTION_SETS = re.compile(r"\b(?:sse4_[12]|avx|avx2|fma|avx512f|amx_tile|asimd|sve)\b")


def crash_hint(number: int | None) -> str:
    """Return what the signal of a crash means; empty for another signal."""
    hint = CRASH_HINTS.get(number or 0, "")
    if number != signal.SIGILL:
        return hint
    sets = ", ".join(sorted(set(_INSTRUCTION_SETS.findall(read_proc(Path("/proc/cpuinfo"))))))
    return f"{hint}; its instruction sets: {sets or 'unknown'}"


_PER_REPLICA = re.compile(r"with an unsupported type \(<class '[\w.]*PerReplica'>\)")
_NO_KERAS = "Keras cannot be imported. Check that it is installed."
_PACKAGES = re.compile(r'File "(.*/(?:site|dist)-packages)/(?:keras|tensorflow)/')
_STRATEGIES = re.compile(rf"\b(?:{'|'.join(KERAS_2_STRATEGIES)})\b")
_MAX_SOURCE = 1 << 20


def _keras_sentence(
    lines: Sequence[str], exception: Sequence[str], frame: re.Match[str] | None, variables: Mapping[str, str]
) -> str:
    """Return why Keras 3 cannot train, and the remedy; empty for another error."""
    text = "\n".join(exception)
    if _NO_KERAS not in text and not _PER_REPLICA.search(text):
        return ""
    folder = next((match[1] for line in lines if (match := _PACKAGES.search(line))), "")
    versions = {name: _version(folder, name) for name in ("keras", "tf_keras", "tensorflow")}
    versions["tensorflow"] = versions["tensorflow"] or "2.16"
    value = variables.get(KERAS_2, "")
    if _NO_KERAS in text:
        return f"{KERAS_2} is set, but tf_keras is not installed: {missing_keras_2(versions)}" if value else ""
    if value and (problem := ignored_keras_2(value)):
        return f"{KERAS_2}: {problem}"
    strategy = _strategy_in(frame[1]) if frame else ""
    return keras_3_problem(versions, strategy or "this strategy", imports_keras=bool(value))


def _version(folder: str, package: str) -> str:
    """Return `2.21` if FOLDER has `PACKAGE-2.21.0.dist-info`; empty if unknown."""
    names = (re.match(rf"{package}(?:_cpu)?-(\d+\.\d+)[\w.+]*\.dist-info$", name) for name in _entries(folder or "."))
    return next((name[1] for name in names if name), "")


def _strategy_in(path: str) -> str:
    """Return the strategy class that a program's file names; empty if none."""
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            match = _STRATEGIES.search(file.read(_MAX_SOURCE))
    except OSError:
        return ""
    return match[0] if match else ""


def _missing_command(name: str, problem: str, variables: Mapping[str, str]) -> ProgramError:
    if problem != "not found":
        return ProgramError(f"{name}: {problem}", is_cause=True, cannot_start=True)
    commands = (entry for folder in variables.get("PATH", "").split(":") for entry in _entries(folder))
    text, hint = missing_command(name, ("python", *commands))
    return ProgramError(text, is_cause=True, cannot_start=True, hint=hint)


def _entries(folder: str) -> Sequence[str]:
    try:
        return [path.name for path in Path(folder).iterdir()]
    except OSError:
        return ()


def _exception(lines: Sequence[str]) -> tuple[int, int, re.Match[str] | None]:
    """Return start and end of the last exception's text, and the program's last frame.

    A SyntaxError of the program has no header. The header of a long traceback may be cut off.
    """
    ends = [n for n, line in enumerate(lines) if line == _HEADER or line.startswith(_IGNORED)]
    headers = [n for n in ends if lines[n] == _HEADER and not (n and lines[n - 1].startswith(_IGNORED))]
    begins = [number + 1 for number in reversed(headers)]
    begins = begins or [next((n for n, line in enumerate(lines) if _FRAME.match(line)), len(lines) - 1)]
    begin = next((n for n in begins if _LAUNCHER not in lines[_after_frames(lines, n)]), begins[0])
    first = _after_frames(lines, begin)
    frames = [frame for line in lines[begin:first] if (frame := _FRAME.match(line))]
    end = next((n for n in ends if n > first), len(lines))
    return first, end, next((frame for frame in reversed(frames) if not _LIBRARY.search(frame[1])), None)


def _after_frames(lines: Sequence[str], begin: int) -> int:
    """Return the line number of the exception; threads may write between frames."""
    numbered = enumerate(lines[begin:], begin)
    texts = ((n, line) for n, line in numbered if not (line.startswith(" ") or _MARKERS.fullmatch(line)))
    return next((n for n, line in texts if not _LOGGED.match(line)), len(lines) - 1)


def _sentences(lines: Sequence[str]) -> tuple[str, ...]:
    """Return an exception's first and last line, or the reason of a graph's error."""
    if _IN_GRAPH.search(lines[0]):
        reason = next((line for line in lines[1:] if not _GRAPH_DETAIL.match(line)), lines[-1])
        return (_IN_GRAPH.sub("", lines[0]) + _GRAPH_PART.sub("", reason),)
    return lines[0], next((line for line in reversed(lines) if not _NO_REASON.match(line)), lines[-1])


def _folded(text: str) -> str:
    """Remove addresses, tensors, modules, operations, and the middle of a long text."""
    text = _NUMBERS.sub("...", _ADDRESS.sub("", _NODE.sub("", _MODULE.sub("", text))))
    half = _LINE_CHARACTERS // 2
    return text if len(text) <= _LINE_CHARACTERS else f"{text[: half - 3]}...{text[-half:]}"
