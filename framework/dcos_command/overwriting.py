"""What somebody else has changed, and what replaces all options (`--replace`, a roll-back) would take away unseen."""

from __future__ import annotations

import json
from typing import Any, Mapping, Sequence

from .command import Given
from .configurations import differing
from .errors import CommandError, RefusedError, UnreachableError
from .parts import Parts, Table
from .service import Service
from .updating import preview, provided, rejected

Options = Mapping[str, Any]


def taken_away(service: Service, present: Options, given: Given) -> Parts:
    """What DC/OS has of options that the scheduler was not started with: nothing else tells that the update ends them.

    Raise CommandError with them, unless `force` is given.
    """
    found = _unbegun(service, present)
    if found and not given.get("force"):
        lines = (f"{item['option']}: {_text(item['new'])}; its scheduler has {_text(item['old'])}" for item in found)
        raise CommandError(
            "DC/OS has options for this service that its scheduler was not started with:\n"
            + "\n".join(lines)
            + "\nSomebody else's update is under way, or its Marathon app was changed. Nothing was done. See: "
            f"{given['program']} update status; and give the command again, with --force if these are to be lost"
        )
    rows = [(item["option"], _text(item["new"]), _text(item["old"])) for item in found]
    lost = "Options that DC/OS has, and its scheduler was not started with, are lost:"
    return (lost, Table(("option", "DC/OS", "scheduler"), rows)) if rows else ()


def _unbegun(service: Service, present: Options) -> Sequence[Mapping[str, Any]]:
    """Empty, too, where the scheduler does not answer, or has refused them: that is told anyway."""
    try:
        if rejected(service):
            return ()
        found: Sequence[Mapping[str, Any]] = preview(service, present, None)["changed"]
    except (RefusedError, UnreachableError):
        return ()
    return found


def unchanged(service: Service, present: Options, given: Given) -> None:
    """That nobody has updated the service since it had these options, which whoever wants to replace them has seen.

    Raise CommandError.
    """
    if changes := differing(provided(service), present):
        raise CommandError(
            f"somebody else has updated the service meanwhile: {', '.join(changes)}. Nothing was done. "
            f"See its options with: {given['program']} describe; and give the command again"
        )


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)
