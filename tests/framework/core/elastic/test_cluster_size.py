"""Sizes of a job: fewer without offers, others at a checkpoint, idle agents."""

from dataclasses import replace

import pytest

from builders import a_job, a_running_state, a_spec, a_status, an_offer, with_fields
from tf_executor.contract.reports import Progress
from tf_executor.contract.states import TaskState, Verdict
from tf_executor.contract.strategies import Strategy
from tf_scheduler.core.elastic.cluster_size import (
    GROW_PAUSE,
    deadlines,
    describe_wait,
    give_back,
    growth,
    keep_size,
    reduce_size,
    resize_at_checkpoint,
    restore_full_size,
    scale,
    take_idle_agents,
)
from tf_scheduler.core.plans.scheduling import view_of
from tf_scheduler.core.recovery.recover import mark_ready
from tf_scheduler.core.recovery.replacement import replace_launch
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import LaunchRetired, RecoveryDecided, ResultDecided, StatusStored, TaskPaused
from tf_scheduler.model.offer import OfferRound
from tf_scheduler.model.plan import Reply
from tf_scheduler.model.spec import JobKind, RecoveryPolicy, StorageMode, StoragePolicy
from tf_scheduler.model.state import Result, SchedulerState
from tf_scheduler.model.task import Resized

SPEC = a_spec(
    strategy=Strategy.MULTI_WORKER_MIRRORED,
    jobs=(a_job(JobKind.WORKER, 4, min_count=2),),
    recovery=RecoveryPolicy(shrink_after=60.0),
)
NOW = 100.0


def lost(cpus, spec=SPEC):
    """All workers are lost at 20; an agent fits some of them, at 0.6 cpus each."""
    state = a_running_state(spec)
    records = state.stored.tasks.values()
    recoveries = (replace(replace_launch(state, item, "x", 20.0), must_move=True) for item in records)
    state = apply(state, *(RecoveryDecided(item) for item in recoveries))
    state = apply(state, *(StatusStored(a_status(item.id, TaskState.LOST)) for item in records))
    offer = an_offer(cpus=cpus)
    return mark_ready(with_fields(state, round=OfferRound().hold([offer], NOW)), NOW)


def reduced(state, now=NOW):
    return reduce_size(state, now, view_of(state).gangs).changes


@pytest.mark.parametrize(("cpus", "expected"), [(1.2, 2), (1.8, 3)])
def test_cluster_restarts_with_workers_that_fit(cpus: float, expected: int) -> None:
    assert (Resized(expected, NOW),) == reduced(lost(cpus))


@pytest.mark.parametrize("count", range(1, 8))
def test_cluster_gets_the_most_workers_that_fit(count: int) -> None:
    spec = replace(SPEC, jobs=(a_job(JobKind.WORKER, 8, min_count=1),))

    assert (Resized(count, NOW),) == reduced(lost(0.6 * count, spec))


def test_cluster_is_not_smaller_than_minimum() -> None:
    assert () == reduced(lost(cpus=0.6))


def test_cluster_waits_for_all_workers_before_it_shrinks() -> None:
    assert () == reduced(lost(cpus=1.2), now=79.0)
    assert (Resized(2, 80.0),) == reduced(lost(cpus=1.2), now=80.0)


@pytest.mark.parametrize(
    "state",
    [
        with_fields(lost(1.2), round=OfferRound()),
        apply(lost(1.2), StatusStored(a_status("worker-0__1"))),
        apply(lost(1.2), ResultDecided(Result(Verdict.FAILED, "x", 9.0))),
        lost(1.2, a_spec(strategy=Strategy.MULTI_WORKER_MIRRORED, jobs=(a_job(JobKind.WORKER, 4),))),
    ],
    ids=["no offers", "a worker runs", "ended", "not elastic"],
)
def test_cluster_keeps_its_size(state) -> None:
    assert () == reduced(state)


def test_restart_restores_full_size() -> None:
    small = apply(lost(1.2), Resized(2, 10.0))
    later = apply(lost(1.2), Resized(2, 30.0))

    assert (Resized(None, 10.0),) == restore_full_size(small).changes
    assert SPEC == restore_full_size(small).state.spec
    assert () == restore_full_size(later).changes


def test_gang_without_workers_of_smaller_cluster_is_ignored() -> None:
    """With two workers nothing of the second gang is left to match."""
    (gang,) = view_of(lost(1.2)).gangs
    first, second = replace(gang, tasks=gang.tasks[:2]), replace(gang, tasks=gang.tasks[2:])

    assert (Resized(2, NOW),) == reduce_size(lost(1.2), NOW, (first, second)).changes


def test_cluster_without_gangs_keeps_its_size() -> None:
    assert () == reduce_size(lost(1.2), NOW, ()).changes


def test_live_task_of_another_job_does_not_keep_the_size() -> None:
    """An evaluator runs beside the training."""
    spec = replace(SPEC, jobs=(*SPEC.jobs, a_job(JobKind.EVALUATOR)))
    state = apply(lost(1.2, spec), StatusStored(a_status("evaluator-0__1")))

    assert (Resized(2, NOW),) == reduced(state)


# --- A change of the size waits for the next checkpoint


def training(**changes):
    """Two workers that may be one to four; the options want them."""
    spec = a_spec(strategy=Strategy.MULTI_WORKER_MIRRORED, jobs=(a_job(JobKind.WORKER, 2),))
    options = {"resize_wait": 600.0, "checkpoint_dir": "/data", "max_workers": 4, **changes}
    return with_fields(a_running_state(replace(spec, **options)), connected=True)


def saved(state, saves, step=None):
    """The leader's executor has seen this number of checkpoints."""
    (launch,) = (record.id for name, record in state.stored.tasks.items() if name == "worker-0")
    return state.with_process(progress={launch: Progress(1, NOW, saves=saves, saved_step=step)})


def scaled(count, state=None, now=NOW):
    return scale(saved(training(), 1) if state is None else state, count, now).state


def test_requested_size_waits_for_the_next_checkpoint() -> None:
    decision = scale(saved(training(), 1), 3, NOW)

    assert Resized(2, NOW, 3, configured=2, until=NOW + 600.0, saves=1) == decision.state.stored.resized
    assert (2, 2) == (decision.state.spec.task_count, decision.state.stored.full_spec.task_count)
    words = "keeps 2 workers until its next checkpoint, at most 10 min; then it restarts with 3 workers"
    assert words in describe_wait(decision.state)
    assert [NOW + 600.0] == list(deadlines(decision.state))


@pytest.mark.parametrize(
    ("saves", "step", "now", "words"),
    [
        (2, 40, NOW, "saved step 40"),
        (2, None, NOW, "saved a checkpoint"),
        (1, None, NOW + 600, "no checkpoint in 10 min"),
    ],
)
def test_wait_ends_at_a_checkpoint_or_its_limit(saves: int, step: int | None, now: float, words: str) -> None:
    decision = resize_at_checkpoint(saved(scaled(3), saves, step), now)

    assert 3 == decision.state.spec.task_count
    assert "" == describe_wait(decision.state)
    assert words in decision.outcomes[0].message
    assert [] == list(deadlines(decision.state))


@pytest.mark.parametrize("saves", [None, 4, 5])
def test_earlier_report_of_the_leader_ends_no_wait(saves: int | None) -> None:
    """After a restart the scheduler knows a stored report, or none."""
    state = scaled(3, saved(training(), 5))
    state = state.with_process(progress={}) if saves is None else saved(state, saves)

    assert () == resize_at_checkpoint(state, NOW).changes
    assert [NOW + 600.0] == list(deadlines(state))


def test_checkpoints_that_the_program_uploads_are_not_awaited() -> None:
    """The executor does not see them."""
    direct = StoragePolicy(mode=StorageMode.DIRECT)
    for folder, policy, waits in (("s3://b/run", direct, False), ("s3://b/run", StoragePolicy(), True)):
        state = scaled(3, saved(training(checkpoint_dir=folder, storage=policy), 1))
        assert waits == (state.stored.resized.until is not None)


@pytest.mark.parametrize(
    "state",
    [scaled(3), saved(with_fields(scaled(3), connected=False), 2), saved(training(), 2)],
    ids=["no checkpoint", "not connected", "nothing to wait for"],
)
def test_wait_goes_on(state) -> None:
    assert () == resize_at_checkpoint(state, NOW + 599).changes


def test_checkpoint_ends_the_wait_at_once() -> None:
    assert [NOW] == list(deadlines(saved(scaled(3), 2)))


@pytest.mark.parametrize(
    "state",
    [
        training(resize_wait=0.0),
        training(checkpoint_dir=""),
        replace(training(), spec=replace(training().spec, user="other")),
        apply(training(), RecoveryDecided(replace_launch(training(), training().stored.tasks["worker-0"], "x", 20.0))),
        apply(training(), LaunchRetired("worker-0__1", "update")),
        apply(training(), TaskPaused("worker-0", 20.0)),
    ],
    ids=["not wanted", "no checkpoints", "other options", "lost", "restarting", "paused"],
)
def test_tasks_that_restart_anyway_do_not_wait(state) -> None:
    assert Resized(None, NOW, 3, configured=2) == scaled(3, state).stored.resized


def test_size_of_a_job_without_workers_is_not_kept() -> None:
    assert () == keep_size(SchedulerState(training().spec), NOW).changes


def test_other_options_end_the_wait() -> None:
    waiting = scaled(3)
    changed = replace(waiting.stored.full_spec, user="other")
    state = replace(waiting, spec=changed, stored=replace(waiting.stored, full_spec=None))

    assert Resized(None, NOW, 3, configured=2) == keep_size(state, NOW).state.stored.resized


def test_wait_is_not_begun_twice() -> None:
    assert () == keep_size(scaled(3), NOW + 5).changes


def test_smaller_cluster_stays_until_its_restart() -> None:
    """With `min_count` it does not wait for a checkpoint."""
    spec = replace(SPEC, resize_wait=600.0)
    assert () == keep_size(apply(a_running_state(spec), Resized(2, 9.0)), NOW).changes


@pytest.mark.parametrize(
    ("state", "count", "reply", "words"),
    [
        (training(), 5, Reply.CONFLICT, "from 1 to 4"),
        (training(min_workers=2), 1, Reply.CONFLICT, "from 2 to 4"),
        (training(max_workers=0), 3, Reply.CONFLICT, "worker.elastic.max"),
        (training(), 2, Reply.ALREADY, "already is 2"),
        (scaled(3), 3, Reply.ALREADY, "already is 3"),
        (apply(training(), ResultDecided(Result(Verdict.FAILED, "x", 9.0))), 3, Reply.CONFLICT, "finished"),
    ],
)
def test_request_is_refused_with_its_reason(state, count: int, reply: Reply, words: str) -> None:
    decision = scale(state, count, NOW)

    assert decision.answer is not None
    assert (reply, ()) == (decision.answer.reply, decision.changes)
    assert words in decision.answer.message


def test_request_ends_with_the_option() -> None:
    """worker.count 3 of the options counts, not what was requested with 2."""
    spec = replace(training().spec, jobs=(a_job(JobKind.WORKER, 3),))

    assert 3 == apply(SchedulerState(spec), Resized(None, NOW, 4, configured=2)).spec.task_count


def test_earlier_request_does_not_come_back() -> None:
    """worker.count 2, 3 requested, then worker.count 4 and 2 again."""
    spec = replace(training().spec, jobs=(a_job(JobKind.WORKER, 4),))
    state = keep_size(apply(SchedulerState(spec), Resized(None, 9.0, 3, configured=2)), NOW).state

    assert Resized(None, 9.0) == state.stored.resized


# --- Idle agents


def growing(**changes):
    """A training on one agent that runs since 0 and may take two more workers."""
    state = training(grows=True, **changes)
    status = (StatusStored(a_status(item.id)) for item in state.stored.tasks.values())
    return with_fields(apply(state, *status), suppressed=True).with_process(waiting_frameworks=())


def taken(state, *offers, now=NOW):
    return take_idle_agents(state, offers, now, view_of(state)).state.stored.resized


def test_job_asks_for_offers_after_a_pause() -> None:
    assert [GROW_PAUSE] == [at - growing().stored.tasks["worker-0"].launched_at for at in deadlines(growing())]
    assert frozenset({"worker-2"}) == growth(growing(), NOW)
    assert frozenset() == growth(growing(), growing().stored.tasks["worker-0"].launched_at + GROW_PAUSE - 1)


@pytest.mark.parametrize(("cpus", "wanted"), [(0.5, None), (0.6, 3), (5.0, 4)])
def test_job_takes_as_many_workers_as_fit(cpus: float, wanted: int | None) -> None:
    size = taken(growing(), an_offer(cpus=cpus))

    assert (wanted, wanted is not None) == (size.wanted, size.grown)


@pytest.mark.parametrize(
    "state",
    [
        training(),
        growing(max_workers=2),
        growing().with_process(waiting_frameworks=("marathon",)),
        growing().with_process(waiting_frameworks=None),
        apply(growing(), Resized(2, 9.0, 3, configured=2, until=700.0)),
        apply(growing(), LaunchRetired("worker-0__1", "update")),
        apply(growing(), ResultDecided(Result(Verdict.FAILED, "x", 9.0))),
        SchedulerState(growing().spec),
    ],
    ids=["manual", "largest", "others wait", "not known", "resizing", "restarting", "ended", "not launched"],
)
def test_job_takes_no_idle_agents(state) -> None:
    assert frozenset() == growth(state, NOW)
    assert taken(state, an_offer(cpus=5.0)) is state.stored.resized


def test_agents_are_given_back_to_frameworks_that_wait() -> None:
    grown = apply(growing(), Resized(None, 9.0, 4, True, 2))

    decision = give_back(grown, ("marathon",), NOW)

    assert (2, ("marathon",)) == (decision.state.spec.task_count, decision.state.process.waiting_frameworks)
    assert "marathon" in decision.outcomes[0].message
    assert () == give_back(growing(), ("marathon",), NOW).changes
    assert () == give_back(grown, (), NOW).changes


def test_requested_size_returns_after_the_growth() -> None:
    state = apply(growing(), Resized(None, 9.0, 3, configured=2))
    grown = take_idle_agents(state, (an_offer(cpus=5.0),), NOW, view_of(growing())).state
    assert (4, 3) == (grown.stored.resized.wanted, grown.stored.resized.requested)

    size = give_back(grown, ("marathon",), NOW).state.stored.resized
    assert (3, 2, False, None) == (size.wanted, size.configured, size.grown, size.requested)


def test_first_report_of_other_frameworks_delays_nothing() -> None:
    unknown = growing().with_process(waiting_frameworks=None)
    assert 0.0 == give_back(unknown, (), NOW).state.process.demand_changed_at
    assert NOW == give_back(unknown, ("marathon",), NOW).state.process.demand_changed_at


def test_grown_job_restarts_with_the_workers_that_fit() -> None:
    """It does not wait for agents that were idle once."""
    spec = replace(SPEC, jobs=(a_job(JobKind.WORKER, 2),), grows=True, max_workers=4)
    state = lost(1.8, apply(SchedulerState(spec), Resized(None, 9.0, 4, True, 2)).spec)
    state = apply(replace(state, spec=spec), Resized(None, 9.0, 4, True, 2))

    assert (Resized(None, NOW, 3, True, 2),) == reduced(state)
