"""`debug ...`: what the scheduler thought of offers, and what is reserved."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Sequence

from .command import Command, Given
from .parts import Line, Parts, Table, status
from .service import Service, path
from .streams import clock

_SHOWN = 20  # offers


def _offers(service: Service, _given: Given) -> Any:
    return service.get("v2/debug/offers")


def _show_offers(found: Mapping[str, Any], _given: Given) -> Iterator[Any]:
    yield Line((f"accepted {found['acceptedCount']}, rejected {found['rejectedCount']}",))
    rows = [_look(look) for look in found["offers"][:_SHOWN]]
    yield Table(("when", "pod", "outcome", "why"), rows, empty="No offer was looked at yet.")


def _look(look: Mapping[str, Any]) -> Sequence[Any]:
    when = clock(look["timestamp"] / 1000)  # the SDK's are milliseconds
    return when, look["pod-instance-name"], status(look["outcome"]), "\n".join(look["explanation"])


def _reservations(service: Service, _given: Given) -> Any:
    return service.get(path("debug", "reservations"))


def _show_reservations(found: Mapping[str, Any], _given: Given) -> Parts:
    rows = [(host, name) for host, names in sorted(found.items()) for name in names]
    yield Table(("agent", "reservation"), rows, empty="Nothing is reserved.")


COMMANDS = (
    Command("debug offers", "The last looks at offers, and why each did not fit.", _offers, _show_offers),
    Command("debug reservations", "What is reserved for the service, by agent.", _reservations, _show_reservations),
)
