"""Format and redact log records as text or JSON lines; install signal handlers."""

from __future__ import annotations

import json
import logging
import re
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from queue import SimpleQueue
from threading import Thread
from typing import Any, TextIO

from tf_executor.secrets.encodings import encodings_of

from .model.redaction import MASK, redact_text

#: Characters. Shorter secrets are parts of ordinary words, which must stay readable.
MIN_SECRET_LENGTH = 6


class SecretRedactor:
    """Redact secrets in all encodings; also each single line of a multi-line secret."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._parts: dict[str, set[str]] = {}
        self.set("", values)

    def set(self, owner: str, values: Iterable[str]) -> None:
        """Replace the secrets of one owner, such as a job; those of others stay."""
        own = {part for value in values for part in _encoded_parts(value) if len(part) >= MIN_SECRET_LENGTH}
        self._parts = {**self._parts, owner: own}
        parts = set[str]().union(*self._parts.values())
        # Longest first: one secret may be a prefix of another.
        words = "|".join(re.escape(part) for part in sorted(parts, key=len, reverse=True))
        self._pattern = re.compile(words) if words else None

    def redact(self, text: str) -> str:
        """Return the text without secrets and without passwords in URLs."""
        return redact_text(text if self._pattern is None else self._pattern.sub(MASK, text))


def _encoded_parts(value: str) -> Iterator[str]:
    for part in (value, *(line.strip() for line in value.splitlines())):
        if len(part) >= MIN_SECRET_LENGTH:
            yield from encodings_of(part.encode("utf-8", "replace"))


CONSOLE, JSON = "console", "json"
#: Fields of a record. `job`: a job of a queue service. `decision`: kind of the event and number of its decision.
#: `outcome`: an OutcomeKind.
KEYS = ("job", "task", "task_id", "offer_id", "agent_id", "decision", "outcome")

#: Start of the name of the thread that runs a job of a queue service; its id follows.
JOB_THREAD = "job "

#: `2026-01-31 12:00:00,000 INFO tf_scheduler.runner: worker-0 is running [task=worker-0 decision=StatusUpdated-17]`
_CONSOLE = re.compile(
    rf"[\d-]+ [\d:,]+ [A-Z]+ (?P<logger>[\w.]+): (?P<message>.*?)(?: \[(?:{'|'.join(KEYS)})=[^\]]*\])?"
)
#: Prefix of continuation lines, so that no text can imitate the start of a record.
CONTINUATION = "    "


class ConsoleFormatter(logging.Formatter):
    """Format a record as local time, level, logger, message, and fields in brackets."""

    def __init__(self, redactor: SecretRedactor) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: ")
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        first, *rest = [*record.getMessage().splitlines(), *_trace(self, record).splitlines()] or [""]
        record.asctime = self.formatTime(record)
        facts = " ".join(f"{key}={value}" for key, value in _record_fields(record).items() if value is not None)
        whole = [f"{self.formatMessage(record)}{first}{f' [{facts}]' if facts else ''}", *rest]
        return self._redactor.redact(f"\n{CONTINUATION}".join(whole))


class JsonFormatter(logging.Formatter):
    """Format a record as JSON: UTC time, level, logger, message, KEYS (null: unknown)."""

    def __init__(self, redactor: SecretRedactor) -> None:
        super().__init__()
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": self._redactor.redact(record.getMessage()),
            **{key: value and self._redactor.redact(value) for key, value in _record_fields(record).items()},
        }
        if trace := _trace(self, record):
            line["exception"] = self._redactor.redact(trace)
        return json.dumps(line)


#: Redacts the log of this process.
_LOG_REDACTOR = SecretRedactor()


def configure_logging(stream: TextIO, form: str, level: str, secrets: Iterable[str]) -> None:
    """Write records of `level` (a name such as INFO) and above to the stream."""
    redact_in_log("", secrets)
    handler = logging.StreamHandler(stream)
    handler.setFormatter((JsonFormatter if form == JSON else ConsoleFormatter)(_LOG_REDACTOR))
    logging.basicConfig(handlers=[handler], level=level)


def redact_in_log(owner: str, secrets: Iterable[str]) -> None:
    """Redact the secrets of one owner in the log, and no longer its earlier ones."""
    _LOG_REDACTOR.set(owner, secrets)


def parse_line(line: str) -> tuple[str, str] | None:
    """Return logger and message of a line in either format, None for other lines."""
    if line.startswith("{"):
        try:
            entry = json.loads(line)
            return entry["logger"], entry["message"]
        except (ValueError, KeyError, TypeError):
            return None
    match = _CONSOLE.fullmatch(line)
    return None if match is None else (match["logger"], match["message"])


def _record_fields(record: logging.LogRecord) -> dict[str, str | None]:
    thread = record.threadName or ""
    job = thread.removeprefix(JOB_THREAD) if thread.startswith(JOB_THREAD) else None
    return {"job": job, **{key: getattr(record, key, None) or None for key in KEYS[1:]}}


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = [formatter.formatException(record.exc_info)] if record.exc_info else []
    parts += [formatter.formatStack(record.stack_info)] if record.stack_info else []
    return "\n".join(parts)


# --- signals


@contextmanager
def handle_signals(handler: Callable[[signal.Signals], None], *signals: signal.Signals) -> Iterator[None]:
    """Call `handler` with each signal in the block, then restore earlier handlers.

    The handler interrupts the main thread, and must not take a lock that this thread may hold.
    """
    previous = {each: signal.signal(each, lambda number, _frame: handler(signal.Signals(number))) for each in signals}
    try:
        yield
    finally:
        for each, restored in previous.items():
            signal.signal(each, restored)


@contextmanager
def handle_signals_in_thread(handler: Callable[[signal.Signals], None], *signals: signal.Signals) -> Iterator[None]:
    """Call `handler` in another thread, where it may take a lock; see handle_signals."""
    # SimpleQueue.put may interrupt itself (documented as reentrant).
    received: SimpleQueue[signal.Signals | None] = SimpleQueue()

    def run() -> None:
        while (number := received.get()) is not None:
            handler(number)

    Thread(target=run, name="signals", daemon=True).start()
    try:
        with handle_signals(received.put, *signals):
            yield
    finally:
        received.put(None)
