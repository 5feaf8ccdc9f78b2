"""The state machines of plans cover everything."""

import pytest

from tf_executor.contract.states import Status
from tf_scheduler.core.plans import status_tables
from tf_scheduler.core.plans.status_tables import ChildStatuses, aggregate
from tf_scheduler.model.plan import Verb


def test_every_situation_has_a_status() -> None:
    assert set(status_tables.LaunchSituation) == set(status_tables.SITUATIONS)
    assert set(status_tables.EndSituation) == set(status_tables.ENDINGS)
    assert set(Verb) == set(status_tables.ALREADY)


@pytest.mark.parametrize(
    ("children", "turn", "interrupted", "expected"),
    [
        ({Status.ERROR, Status.COMPLETE}, set(), True, Status.ERROR),
        (set(), set(), True, Status.COMPLETE),
        ({Status.COMPLETE}, set(), True, Status.COMPLETE),
        ({Status.PENDING}, {Status.PENDING}, True, Status.WAITING),
        ({Status.PENDING}, {Status.PENDING}, False, Status.PENDING),
        ({Status.COMPLETE, Status.PENDING}, {Status.PENDING}, False, Status.IN_PROGRESS),
        ({Status.PENDING, Status.STARTING}, {Status.STARTING}, False, Status.STARTING),
        ({Status.PENDING}, set(), False, Status.PENDING),
        ({Status.DELAYED}, {Status.DELAYED}, False, Status.DELAYED),
    ],
)
def test_aggregate_status_of_children(children, turn, interrupted: bool, expected) -> None:
    assert expected is aggregate(ChildStatuses(frozenset(children), frozenset(turn), interrupted))
