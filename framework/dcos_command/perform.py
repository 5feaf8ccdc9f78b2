"""One command, from what was typed to what is seen, whoever draws it."""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Iterator

from .command import Command, Given
from .errors import RefusedError, UnreachableError
from .kinds import hint
from .parts import Line, Parts, dim
from .screen import Screen, confirm
from .service import Service

_EVERY = 0.5  # seconds between two looks
_PATIENCE = 20  # looks without an answer: a scheduler that is started again is mostly there by then
#: Statuses with which a wrong name is answered.
_WRONG_NAME = (400, 404)


def perform(command: Command, service: Service, given: Given, screen: Screen, *, as_json: bool) -> None:
    """Ask, and show what is answered. What cannot be undone is confirmed first, unless `yes` is given.

    Raise CommandError; where a name is wrong, it tells those that there are.
    """
    given = {**given, "program": service.program}  # for those who tell what to do next
    try:
        if command.foretell is not None:
            told, found = command.foretell(service, given)
            Screen(sys.stderr).show(told)  # not among what is printed of the answer
            given = {**given, **found}
        if command.confirm and not given.get("yes"):
            confirm(command.confirm.format(**given), sys.stdin, sys.stderr)
        _perform(command, service, given, screen, as_json)
    except RefusedError as error:
        known = hint(service, command, given, str(error)) if error.status in _WRONG_NAME else ""
        raise RefusedError(f"{error}{known}", error.status, error.word) from error


def _perform(command: Command, service: Service, given: Given, screen: Screen, as_json: bool) -> None:
    if given.get("follow") and command.follow is not None and command.show_item is not None:
        with screen.attended():
            for item in command.follow(service, given):
                screen.show((json.dumps(item),) if as_json else command.show_item(item, given))
    elif command.watched_until is not None and screen.live and not as_json:
        screen.play(_frames(command, service, given))
    else:
        found = (command.fetch if as_json else command.read or command.fetch)(service, given)
        screen.show((json.dumps(found, indent=2),) if as_json else command.show(found, given))


def _frames(command: Command, service: Service, given: Given) -> Iterator[Parts]:
    """What is to be seen now, again and again, until the end, or until nothing has answered for a while."""
    assert command.watched_until is not None, "the caller has looked"
    shown: list[Any] = []
    failures = 0
    while True:
        try:
            last = command.watched_until(service)
            shown = [*command.show(command.fetch(service, given), given), *(last or ())]
            failures = 0
        except UnreachableError:
            failures += 1
            if not shown:
                raise
            if failures > _PATIENCE:
                raise UnreachableError(f"{service.url} does not answer any more: the service has ended") from None
            last = None
        yield [*shown, Line((dim("No answer: asking again."),))] if failures else shown
        if last is not None:
            return
        time.sleep(_EVERY)
