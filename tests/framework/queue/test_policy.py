"""Order, limits, admission, estimates and victims, in simulated time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kit.cluster_model import SLOT, ClusterModel, make_job, times
from tf_executor.contract.states import Verdict
from tf_scheduler.model.ids import AgentId
from tf_scheduler.model.resources import UNIT, Needs
from tf_scheduler.queue.admission import Admission, QueueFacts, next_admission, not_yet
from tf_scheduler.queue.cluster import ClusterRoom, PassingRule, Room
from tf_scheduler.queue.estimates import estimates, expected_end
from tf_scheduler.queue.job import TRANSITIONS, Happening, IllegalJobTransitionError, Job, JobId, JobState
from tf_scheduler.queue.preemption import Preemption, victims
from tf_scheduler.queue.shares import Order, QueueSpec, QueueUsage, ordered, serve

QUEUES = {name: QueueSpec(name) for name in "abc"}
AGENT = AgentId("agent-1")
TWELVE = Needs(cpus=12 * UNIT, mem=12_000 * UNIT)


def running(job: Job, since: float = 0.0) -> Job:
    return replace(job, state=JobState.RUNNING, started=since, since=since)


def usage_of(*jobs: Job) -> QueueUsage:
    return QueueUsage.of(jobs, TWELVE)


def gang(name: str, *slots: int) -> Job:
    """Return a job whose tasks need several slots each."""
    tasks = tuple(times(SLOT, count) for count in slots)
    return replace(make_job(name), tasks=tasks, needs=sum(tasks, Needs()))


def room_of(free: Room, base: Job, held: Room, end: float) -> ClusterRoom:
    """Return the room of a cluster where one job runs until `end`."""
    return ClusterRoom.of({base.id: base}, {base.id: end}, free, {base.id: held}, 0.0, lambda job: 0.0)


def name_of(admission: Admission) -> str:
    return admission.job.id if admission.job is not None else ""


# --- states


def test_every_job_can_reach_an_end() -> None:
    """Some happenings lead from each state to an end."""
    reach = {state for state in JobState if state.has_ended}
    for _ in JobState:
        reach |= {state for (state, _), target in TRANSITIONS.items() if target in reach}

    assert set(JobState) == reach


def test_illegal_transition_raises() -> None:
    with pytest.raises(IllegalJobTransitionError, match="job x is queued: its first gang is launched"):
        make_job("x").after_event(Happening.LAUNCHED, 1.0)


# --- order


def test_fifo_and_priority_ignore_shares() -> None:
    jobs = [make_job("late", at=2.0, priority=9), make_job("early", at=1.0), running(make_job("r", "b", 4))]

    assert ["early", "late"] == [job.id for job in ordered(jobs, QUEUES, usage_of(*jobs), Order.FIFO)]
    assert ["late", "early"] == [job.id for job in ordered(jobs, QUEUES, usage_of(*jobs), Order.PRIORITY)]


def test_fair_order_alternates_between_queues_by_weight() -> None:
    """A queue of weight 2 gets two jobs for each of the others."""
    queues = {**QUEUES, "b": QueueSpec("b", weight=2.0)}
    jobs = [make_job(f"{name}{number}", name, at=float(number)) for name in "abc" for number in range(4)]

    first = [job.queue for job in ordered(jobs, queues, usage_of(), Order.FAIR)][:8]

    assert {"a": 2, "b": 4, "c": 2} == {name: first.count(name) for name in "abc"}


def test_running_jobs_are_charged_to_their_queue() -> None:
    jobs = [make_job("a1", "a"), make_job("b1", "b", at=5.0), running(make_job("r", "a", 4))]

    assert ["b1", "a1"] == [job.id for job in ordered(jobs, QUEUES, usage_of(*jobs), Order.FAIR)]


def test_idle_time_gives_neither_credit_nor_debt() -> None:
    """A queue that returns begins with the least of the others."""
    busy = usage_of(running(make_job("r", "a", 6)))
    served = serve({}, busy, QUEUES, ["b"], 100.0)

    assert {"a": 50.0, "b": 0.0} == served
    assert {"a": 50.0, "b": 0.0, "c": 0.0} == serve(served, usage_of(), QUEUES, ["a", "b", "c"], 0.0)


def test_limits_name_amounts() -> None:
    queue = QueueSpec("a", limits=Needs(cpus=4 * UNIT), max_jobs=2)
    three = usage_of(running(make_job("r", "a", 3)))

    assert "" == three.over_limit(queue, SLOT)
    assert "queue a uses 3 of 4 cpus (limits), and the job needs 2" == three.over_limit(queue, SLOT + SLOT)
    both = usage_of(running(make_job("r", "a")), running(make_job("s", "a")))
    assert "queue a runs 2 of 2 jobs (max_jobs)" == both.over_limit(queue, SLOT)


# --- admission


def test_job_waits_for_those_it_comes_after() -> None:
    job = make_job("second", after=(JobId("first"),))
    first = make_job("first")
    states = {
        "it comes after first, which has not ended": first,
        "it comes after first, which has not succeeded": replace(
            first, state=JobState.FINISHED, verdict=Verdict.FAILED
        ),
        "": replace(first, state=JobState.FINISHED, verdict=Verdict.SUCCEEDED),
    }

    assert list(states) == [not_yet({each.id: each}, job, 0.0) for each in states.values()]


def test_one_gang_starts_at_a_time() -> None:
    model = ClusterModel(QUEUES)
    for name in ("one", "two"):
        model.submit(make_job(name), 10.0)
    model.step(0.1)

    admission = next_admission(model.facts())

    assert admission.job is None
    assert {"two": "one is starting; one job starts at a time"} == admission.waits


def test_job_passes_another_that_it_does_not_delay() -> None:
    """It ends before the first one starts, or uses what that leaves."""
    base = running(make_job("base", slots=2))
    big, long, leaves, short, unknown = (
        make_job("big", slots=3),
        make_job("long", slots=2, expected_seconds=500.0),
        make_job("leaves", expected_seconds=500.0),
        make_job("short", slots=2, expected_seconds=50.0),
        make_job("unknown", slots=2),
    )
    end = {base.id: 100.0}

    def admit(*order: Job, ends: dict[JobId, float] = end) -> Admission:
        jobs = {job.id: job for job in (base, *order)}
        fits = lambda job: "" if len(job.tasks) <= 2 else "no room"  # noqa: E731
        free, held = {AGENT: times(SLOT, 2)}, {base.id: {AGENT: times(SLOT, 2)}}
        return next_admission(
            QueueFacts(0.0, jobs, order, QUEUES, usage_of(base), fits, ends=ends, free=free, held=held)
        )

    assert ["leaves", "short", "", ""] == [name_of(admit(big, job)) for job in (leaves, short, long, unknown)]
    assert "it would delay big, which starts in 1 min 40 s" == admit(big, long).waits[long.id]
    assert ["leaves", "short", "long", ""] == [
        name_of(admit(big, job, ends={})) for job in (leaves, short, long, unknown)
    ]
    assert "it would take the room that big waits for" == admit(big, unknown, ends={}).waits[unknown.id]


def test_job_of_unknown_duration_uses_what_is_left() -> None:
    """Whether it may pass depends on its room, since it may never end."""
    base, big = running(make_job("base", slots=2)), make_job("big", slots=3)
    rule = PassingRule(room_of({AGENT: times(SLOT, 2)}, base, {AGENT: times(SLOT, 2)}, 100.0))
    rule.add(big)

    assert rule.permits(make_job("leaves"), 0.0)
    assert not rule.permits(make_job("takes", slots=2), 0.0)
    assert not rule.permits(make_job("takes-too", slots=2), 0.0)
    assert not rule.permits(make_job("long", slots=2), 500.0)
    assert rule.permits(make_job("short", slots=2), 50.0), "longer ones say nothing about it"


def test_gangs_with_equal_sums_are_not_alike() -> None:
    """Two tasks of 2 slots have no room on agents where tasks of 3 and 1 have."""
    free = {AgentId("agent-1"): times(SLOT, 3), AgentId("agent-2"): SLOT}
    room = room_of(free, running(make_job("base")), {}, 100.0)
    twos, uneven = gang("twos", 2, 2), gang("uneven", 3, 1)

    assert twos.needs == uneven.needs
    assert [False, True] == [room.has_room(twos), room.has_room(uneven)]


def test_job_that_fits_no_agent_holds_back_none() -> None:
    model = ClusterModel({"a": QueueSpec("a")}, order=Order.FIFO)
    huge = replace(make_job("huge"), tasks=(times(SLOT, 5),), needs=times(SLOT, 5))
    model.submit(huge, 10.0)
    model.submit(make_job("small"), 10.0)

    assert "small" == name_of(next_admission(model.facts()))


def test_jobs_at_their_limit_do_not_hide_others() -> None:
    """Thousands of jobs of a full queue before it delay no job of another one."""
    queues = {"a": QueueSpec("a", max_jobs=1), "b": QueueSpec("b")}
    model = ClusterModel(queues, order=Order.FIFO)
    model.submit(make_job("first"), 10.0)
    model.step(0.0)
    model.step(5.0)
    for number in range(500):
        model.submit(make_job(f"a{number}", "a", at=1.0), 10.0)
    model.submit(make_job("b1", "b", at=2.0), 10.0)

    admission = next_admission(model.facts())

    assert "b1" == name_of(admission)


# --- estimates


def test_estimate_names_the_job_whose_end_makes_room() -> None:
    first, second = running(make_job("first", slots=2)), make_job("second", slots=2)
    held = {first.id: {AGENT: SLOT + SLOT}}

    found = estimates([second], {first.id: first}, {first.id: 40.0}, {AGENT: SLOT}, held, 10.0, QUEUES)

    assert (40.0, "first") == (found[second.id].at, found[second.id].when)
    assert "when first ends and gives back 2 cpus" == found[second.id].grounds


def test_expected_starts_follow_one_another() -> None:
    """One gang starts at a time: the next one waits until it is launched."""
    jobs = [make_job("one"), make_job("two")]

    found = estimates(jobs, {job.id: job for job in jobs}, {}, {AGENT: times(SLOT, 2)}, {}, 10.0, QUEUES)

    assert [10.0, 10.0 + 3] == [found[job.id].at for job in jobs]


def test_estimate_is_unknown_without_an_end() -> None:
    first, second = running(make_job("first")), make_job("second", slots=2)

    found = estimates([second], {first.id: first}, {}, {AGENT: SLOT}, {first.id: {AGENT: SLOT}}, 0.0, QUEUES)

    assert (None, "first has no expected end") == (found[second.id].at, found[second.id].grounds)


def test_job_after_a_cancelled_one_has_no_estimate() -> None:
    first = replace(make_job("first"), state=JobState.CANCELLED, verdict=Verdict.STOPPED)
    job = make_job("second", after=(first.id,))

    found = estimates([job], {first.id: first, job.id: job}, {}, {AGENT: SLOT}, {}, 0.0, QUEUES)

    assert (None, "it comes after first") == (found[job.id].at, found[job.id].grounds)


def test_job_far_behind_has_no_estimate_after_a_cancelled_one() -> None:
    first = replace(make_job("first"), state=JobState.CANCELLED, verdict=Verdict.STOPPED)
    others = [make_job(f"job-{number}", at=float(number), expected_seconds=10.0) for number in range(300)]
    job = make_job("second", at=300.0, after=(first.id,))

    jobs = {each.id: each for each in (first, *others, job)}
    found = estimates([*others, job], jobs, {}, {AGENT: SLOT}, {}, 0.0, QUEUES)

    assert (None, "it comes after first") == (found[job.id].at, found[job.id].grounds)


def test_too_big_job_has_no_estimate() -> None:
    found = estimates([make_job("huge", slots=9)], {}, {}, {AGENT: SLOT}, {}, 0.0, QUEUES)

    assert "the cluster has too little cpus and mem for it" == found[JobId("huge")].grounds


def test_jobs_far_behind_get_a_rough_estimate() -> None:
    jobs = [make_job(f"job-{number}", at=float(number), expected_seconds=10.0) for number in range(300)]

    found = estimates(jobs, {job.id: job for job in jobs}, {}, {AGENT: SLOT}, {}, 0.0, QUEUES)

    assert "about: 299 jobs are before it" == found[JobId("job-299")].grounds
    assert found[JobId("job-299")].at > found[JobId("job-150")].at  # type: ignore[operator]


def test_job_comes_after_the_expected_end_of_another() -> None:
    first = replace(running(make_job("first")), expected_seconds=40.0)
    second = make_job("second", after=(first.id,))
    jobs = {job.id: job for job in (first, second)}

    found = estimates([second], jobs, {first.id: 40.0}, {AGENT: SLOT}, {first.id: {AGENT: SLOT}}, 10.0, QUEUES)
    unknown = estimates([second], jobs, {}, {AGENT: SLOT}, {first.id: {AGENT: SLOT}}, 10.0, QUEUES)

    assert 40.0 == found[second.id].at
    assert (None, "it comes after first") == (unknown[second.id].at, unknown[second.id].grounds)


def test_estimate_counts_limits_and_pauses() -> None:
    queues = {"a": QueueSpec("a", max_jobs=1), "b": QueueSpec("b", limits=Needs(cpus=UNIT))}
    first = running(make_job("first"))
    waiting = [make_job("a1"), make_job("b1", "b", not_before=20.0), make_job("b2", "b", slots=2)]
    jobs = {job.id: job for job in (first, *waiting)}

    found = estimates(waiting, jobs, {first.id: 40.0}, {AGENT: times(SLOT, 3)}, {}, 10.0, queues)

    assert [40.0, 20.0, None] == [found[job.id].at for job in waiting]
    assert "queue b uses 0 of 1 cpus (limits), and the job needs 2" == found[JobId("b2")].grounds


def test_starting_job_takes_its_places() -> None:
    """Its tasks are not launched: what is free does not show that they need it."""
    first = replace(make_job("first", expected_seconds=30.0), state=JobState.STARTING)
    second = make_job("second")

    found = estimates([second], {first.id: first}, {}, {AGENT: SLOT}, {}, 10.0, QUEUES)

    assert 10.0 + 3 + 30 == found[second.id].at


def test_only_jobs_with_gpus_use_agents_with_gpus() -> None:
    """Mesos offers these agents to no other jobs."""
    gpus = {AGENT: replace(SLOT, gpus=UNIT)}
    train = replace(make_job("train"), tasks=(gpus[AGENT],), needs=gpus[AGENT])

    found = estimates([make_job("plain"), train], {}, {}, gpus, {}, 0.0, QUEUES)

    assert (None, 0.0) == (found[JobId("plain")].at, found[JobId("train")].at)


def test_late_job_is_expected_to_end_soon() -> None:
    assert [100.0, 155.0, None, None] == [
        expected_end(0.0, 100.0, 50.0),
        expected_end(0.0, 100.0, 150.0),
        expected_end(0.0, 100.0, 200.0),
        expected_end(0.0, 0.0, 50.0),
    ]


# --- preemption


def chosen(
    urgent: Job,
    jobs: list[Job],
    mode: Preemption = Preemption.PRIORITY,
    lost: dict[JobId, float] | None = None,
    min_runtime: float = 0.0,
) -> list[JobId]:
    """Return the ids of the victims in a cluster of 12 slots."""

    def fits_without(stopped: tuple[Job, ...]) -> bool:
        rest = [job for job in jobs if job not in stopped]
        return sum(len(job.tasks) for job in rest) + len(urgent.tasks) <= 12

    usage = usage_of(*jobs)
    found = victims(urgent, jobs, usage, QUEUES, mode, fits_without, lost or {}, 100.0, min_runtime)
    return [job.id for job in found]


def test_victims_are_the_fewest_of_lower_priority() -> None:
    jobs = [running(make_job(name, "a", slots)) for name, slots in (("one", 1), ("four", 4), ("seven", 7))]
    lost = {JobId("one"): 1.0, JobId("four"): 2.0, JobId("seven"): 3.0}

    assert ["four"] == chosen(make_job("urgent", "b", 4, priority=9), jobs, lost=lost)
    small = [running(make_job(f"small-{number}")) for number in range(8)]
    assert ["big"] == chosen(make_job("urgent", "b", 4, priority=9), [*small, running(make_job("big", "a", 4))])
    assert 4 == len(chosen(make_job("urgent", "b", 4, priority=9), [*small, *(running(make_job(n)) for n in "wxyz")]))
    assert [] == chosen(make_job("equal", "b", 4), jobs)
    assert [] == chosen(make_job("urgent", "b", 4, priority=9), jobs, Preemption.NEVER)


def test_victim_loses_least_work_and_ran_long_enough() -> None:
    jobs = [running(make_job(name, "a", 6)) for name in ("saved", "unsaved")]
    urgent = make_job("urgent", "b", 4, priority=9)

    assert ["saved"] == chosen(urgent, jobs, lost={JobId("saved"): 3.0})
    assert [] == chosen(urgent, [running(job, since=95.0) for job in jobs], min_runtime=10.0)


def test_fair_mode_stops_jobs_of_queues_over_their_share() -> None:
    jobs = [running(make_job("a1", "a", 8)), running(make_job("b1", "b", 4))]

    assert ["a1"] == chosen(make_job("c1", "c", 2), jobs, Preemption.FAIR)
    assert [] == chosen(make_job("a2", "a", 2), jobs, Preemption.FAIR)
    assert [] == chosen(make_job("c1", "c", 5), jobs, Preemption.FAIR), "c would use more than its share"
    assert [] == chosen(make_job("c1", "c", 2), jobs, Preemption.PRIORITY)


@given(slots=st.lists(st.integers(1, 4), min_size=1, max_size=14), needed=st.integers(1, 8), free=st.integers(0, 3))
def test_no_victim_can_be_spared(slots: list[int], needed: int, free: int) -> None:
    """One or two of the first ten jobs are found if they are enough."""
    jobs = [running(make_job(f"job-{number:02}", "abc"[number % 3], size)) for number, size in enumerate(slots)]
    urgent = make_job("urgent", "b", needed, priority=9)

    def is_enough(stopped: Iterable[Job]) -> bool:
        return free + sum(len(job.tasks) for job in stopped) >= needed

    assume(not is_enough([]))
    found = victims(urgent, jobs, usage_of(*jobs), QUEUES, Preemption.PRIORITY, is_enough, {}, 100.0, 0.0)

    assert bool(found) == is_enough(jobs)
    assert not any(is_enough(job for job in found if job is not spared) for spared in found)
    few = any(is_enough(group) for count in (1, 2) for group in combinations(jobs, count))
    if found and few and len(jobs) <= 10:
        assert len(found) == (1 if any(is_enough([job]) for job in jobs) else 2)
