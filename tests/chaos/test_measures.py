"""The cost of a fault, and the invariants."""

import pytest

from chaos.evidence import Said, accuracy, read
from chaos.measures import LATE, Struck, cost, launched_twice, left_behind, needless_launches, running_twice


def launched(task, number, at):
    agent = {"address": "127.0.0.1:31000", "agent": "agent-1"}
    return {"t": at, "launched": f"{task}__{number}", "task": task, **agent}


def status(task, number, state, at, said=None, *, ended=False, healthy=None):
    found = {"t": at, "status": f"{task}__{number}", "state": state, "ended": ended}
    return {**found, "said": said or at, "healthy": healthy}


def up(task, number, at):
    return [launched(task, number, at), status(task, number, "running", at + 2, healthy=True)]


def lost(task, number, at, said):
    return [
        status(task, number, "failed", at, said, ended=True),
        {"t": at, "replaced": f"{task}__{number}", "why": "it was killed"},
    ]


def epochs(first, *times, run="run-1"):
    return [Said(time, run, f"epoch {first + count}: loss 1.0") for count, time in enumerate(times)]


def test_killed_worker_is_relaunched_during_training() -> None:
    record = read([*up("worker-0", 1, 0), *lost("worker-0", 1, 10.3, 10.2), *up("worker-0", 2, 10.5)])
    found = cost(Struck("worker", "worker-0", 10.0, 14.0, frozenset({"worker-0"})), record, epochs(1, *range(5, 15)))

    assert (0.2, 0.1, 2.5) == pytest.approx((found.noticed, found.decided, found.answers))
    assert (0.0, None, 4.0) == (found.still, found.epochs_lost, found.whole)
    assert (("worker-0",), ()) == (found.hit, found.others)


def test_restarted_chief_shows_lost_steps() -> None:
    lines = [*up("ps-0", 1, 0), *up("chief-0", 1, 0), *lost("ps-0", 1, 10.2, 10.1)]
    lines += [{"t": 7 + epoch, "progress": "chief-0", "step": 44 * epoch} for epoch in (1, 2, 3)]
    record = read([*lines, *lost("chief-0", 1, 10.4, 10.4), *up("ps-0", 2, 10.5), *up("chief-0", 2, 10.6)])
    said = [
        *epochs(1, 7, 8, 9),
        Said(15.0, "run-2", "resumed after epoch 2"),
        *epochs(3, 16, 17, run="run-2"),
    ]
    unit = frozenset({"ps-0", "chief-0"})
    found = cost(Struck("ps", "ps-0", 10.0, 17.5, frozenset({"ps-0"}), unit), record, said)

    assert (("chief-0",), ()) == (found.others, found.needless)
    assert (1, 88) == (found.epochs_lost, found.steps_lost), "the unfinished epoch is repeated"
    assert 6.0 == found.still, "seven seconds between two epochs, where one is usual"


def test_needless_restart_is_named() -> None:
    record = read(
        [*up("worker-0", 1, 0), *lost("worker-0", 1, 10.3, 10.2), *up("worker-0", 2, 10.5), *up("ps-0", 2, 11)]
    )
    hit = frozenset({"worker-0"})

    assert ("ps-0",) == cost(Struck("worker", "worker-0", 10.0, 14.0, hit, hit), record, []).needless


def test_chief_without_checkpoint_loses_all_steps() -> None:
    said = [*epochs(1, 1, 2, 3), *epochs(1, 12, 13, run="run-2")]

    assert 3 == cost(Struck("chief", "chief-0", 5.0, 14.0, frozenset()), read([]), said).epochs_lost


def test_unreachable_agent_is_noticed_without_decision() -> None:
    record = read([*up("worker-0", 1, 0), status("worker-0", 1, "unreachable", 14, 13.5)])
    found = cost(Struck("agent-frozen", "agent-1", 10.0, 20.0, frozenset()), record, epochs(1, 9, 10, 11))

    assert (3.5, None, None) == (found.noticed, found.decided, found.answers)


def test_overlapping_launches_are_found() -> None:
    well = [*up("worker-0", 1, 0), *lost("worker-0", 1, 5, 5), *up("worker-0", 2, 6)]
    away = [*up("ps-0", 1, 0), status("ps-0", 1, "unreachable", 5), *up("ps-0", 2, 6)]

    assert [] == [*launched_twice(read(well)), *launched_twice(read(away))]
    (found,) = launched_twice(read([*up("worker-0", 1, 0), *up("worker-0", 2, 6), *lost("worker-0", 1, 7, 7)]))
    assert "worker-0 was launched again (worker-0__2) while worker-0__1 still ran" == found


def test_duplicate_programs_are_found_unless_unreachable() -> None:
    both = {"worker-0": {"worker-0__1", "worker-0__2"}, "ps-0": {"ps-0__1"}}

    assert 1 == len(list(running_twice(both, [])))
    assert [] == list(running_twice(both, ["worker-0__1"]))


def test_restarts_after_harmless_faults_are_found() -> None:
    """Programs notice a broken connection late, so that fault may seem harmless."""
    record = read([*up("worker-0", 1, 0), *lost("worker-0", 1, 10.3, 10.2), *up("worker-0", 2, 10.5)])
    costs = [cost(Struck(fault, "agent-1", 10.0, 14.0, frozenset()), record, []) for fault in ("agent", *LATE)]

    assert ["agent: worker-0 launched again although nothing had ended"] == list(needless_launches(costs))


def test_leftovers_are_named() -> None:
    assert ["open ports left: 31000, 31001"] == list(left_behind(open_ports={"31001", "31000"}, folders=[]))


def test_accuracy_is_the_last_one_printed() -> None:
    assert 0.98 == accuracy([Said(1.0, "run-1", "test accuracy 0.9800 on 360 images; model saved in x")])
    assert accuracy([Said(1.0, "run-1", "epoch 1: loss 1.0")]) is None
