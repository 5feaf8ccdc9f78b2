"""How offers are declined, and for how long."""

from __future__ import annotations

from collections.abc import Sequence

from tf_scheduler.model.effects import Call, Decline
from tf_scheduler.model.ids import OfferId

#: For offers that we have no use for: long, so that others get them (Mesos documentation, framework guide).
#: REVIVE clears the filter when we need offers again; and Mesos offers an agent anew when more of it is free.
REFUSE_LONG = 3600.0
#: For what is left of an offer while more tasks are to be placed, and between rounds that reserve.
REFUSE_SHORT = 1.0


def declines(offer_ids: Sequence[OfferId], refuse_seconds: float) -> tuple[Call, ...]:
    """One call for all: a DECLINE takes many offers."""
    return (Decline(tuple(offer_ids), refuse_seconds),) if offer_ids else ()
