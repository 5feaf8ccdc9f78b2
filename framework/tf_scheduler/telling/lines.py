"""How a line of the log looks: for people, or as one JSON object. Each can be read without those around it."""

from __future__ import annotations

import json
import logging
import re
from datetime import datetime, timezone
from typing import Any, TextIO

from .masks import Masks

CONSOLE, JSON = "console", "json"
#: Of what a line is about (facts.py). `decision`: the event and the number of the decision on it.
KEYS = ("task", "task_id", "offer_id", "agent_id", "decision")

#: `2026-01-31 12:00:00,000 INFO tf_scheduler.runner: worker-0 is running [task=worker-0 decision=StatusUpdated-17]`
_CONSOLE = re.compile(
    rf"[\d-]+ [\d:,]+ [A-Z]+ (?P<logger>[\w.]+): (?P<message>.*?)(?: \[(?:{'|'.join(KEYS)})=[^\]]*\])?"
)
#: Before lines that go on: so they cannot be taken for the beginning of another.
GOES_ON = "    "


class ConsoleLines(logging.Formatter):
    """Time (local), level, logger, message, and what it is about in brackets."""

    def __init__(self, masks: Masks) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: ")
        self._masks = masks

    def format(self, record: logging.LogRecord) -> str:
        first, *rest = [*record.getMessage().splitlines(), *_trace(self, record).splitlines()] or [""]
        record.asctime = self.formatTime(record)
        facts = " ".join(f"{key}={value}" for key, value in _facts(record).items() if value is not None)
        whole = [f"{self.formatMessage(record)}{first}{f' [{facts}]' if facts else ''}", *rest]
        return self._masks.cover(f"\n{GOES_ON}".join(whole))


class JsonLines(logging.Formatter):
    """One object a line: time (UTC), level, logger, message, and every key of KEYS, null where it is not known."""

    def __init__(self, masks: Masks) -> None:
        super().__init__()
        self._masks = masks

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": self._masks.cover(record.getMessage()),
            **{key: value and self._masks.cover(value) for key, value in _facts(record).items()},
        }
        if trace := _trace(self, record):
            line["exception"] = self._masks.cover(trace)
        return json.dumps(line)


def log_to(stream: TextIO, form: str, level: str, masks: Masks) -> None:
    """Everything that is logged from now on, by Python's name of a level."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines(masks) if form == JSON else ConsoleLines(masks))
    logging.basicConfig(handlers=[handler], level=level)


def read(line: str) -> tuple[str, str] | None:
    """Logger and message of a line in either form; None: it goes on with the one before, or is none of ours."""
    if line.startswith("{"):
        try:
            found = json.loads(line)
            return found["logger"], found["message"]
        except (ValueError, KeyError, TypeError):
            return None
    match = _CONSOLE.fullmatch(line)
    return None if match is None else (match["logger"], match["message"])


def _facts(record: logging.LogRecord) -> dict[str, str | None]:
    return {key: getattr(record, key, None) or None for key in KEYS}


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = [formatter.formatException(record.exc_info)] if record.exc_info else []
    parts += [formatter.formatStack(record.stack_info)] if record.stack_info else []
    return "\n".join(parts)
