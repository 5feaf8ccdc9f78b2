"""What an HTTP error says, whoever answers: our scheduler, Marathon, or Cosmos. Pure."""

from __future__ import annotations

import json
from typing import Any, Iterator, Mapping


def message_of(text: str) -> str | None:
    """The sentence, and a line for each thing that is wrong; None when it is no error of theirs."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    told = found.get("error", found) if isinstance(found, dict) else None
    message = told.get("message") if isinstance(told, dict) else None
    if not isinstance(message, str):
        return None
    return "\n".join([message, *_reasons(found.get("data"))])


def code_of(text: str) -> str:
    """The word for it: our scheduler's `code`, Cosmos' `type`; empty when there is none."""
    try:
        found = json.loads(text)
    except ValueError:
        return ""
    if not isinstance(found, dict):
        return ""
    told = found.get("error")
    word = told.get("code") if isinstance(told, dict) else found.get("type")
    return word if isinstance(word, str) else ""


def _reasons(data: Any) -> Iterator[str]:
    """Cosmos', of options that do not fit, or of an app that Marathon refuses (dcos/cosmos, rpc/v1/model)."""
    errors = data.get("errors") if isinstance(data, dict) else None
    for error in errors if isinstance(errors, list) else ():
        if isinstance(error, dict):
            yield _reason(error)


def _reason(error: Mapping[str, Any]) -> str:
    if "instance" in error:
        return f"{error['instance']['pointer'].strip('/').replace('/', '.')}: {error['message']}"
    return f"{error.get('path', '')}: {'; '.join(error.get('errors', ()))}"
