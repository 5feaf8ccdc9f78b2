"""`secrets ...`: what operators do about secrets; no value of one is ever shown."""

from __future__ import annotations

from typing import Any

from .command import Command, Given
from .plans import show_message
from .service import Service, path


def _refresh(service: Service, _given: Given) -> Any:
    return service.post(path("tf", "secrets", "refresh"), None)


COMMANDS = (
    Command(
        "secrets refresh",
        "Have programs that run get the new values of secrets with reload now.",
        _refresh,
        show_message,
    ),
)
