"""Which steps of a plan may run, and what it does: stop, forget and complete."""

from dataclasses import replace

import pytest

from builders import a_job, a_record, a_running_state, a_spec, a_status, with_fields
from tf_executor.contract.states import TaskState, Verdict
from tf_executor.contract.strategies import Strategy
from tf_scheduler.core.plans.scheduling import (
    KILL_INTERVAL,
    Children,
    RunnableSteps,
    advance,
    due_steps,
    eligible,
    held_back,
    kill_tasks,
    pending_gangs,
    step_children,
    view_of,
)
from tf_scheduler.core.recovery.replacement import replace_launch
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.core.state.spec_index import index_of
from tf_scheduler.model.effects import (
    Kill,
    LaunchRetired,
    PlanControlled,
    RecoveryDecided,
    ResultDecided,
    StatusStored,
    TaskForgotten,
    TaskLaunched,
)
from tf_scheduler.model.ids import TaskId
from tf_scheduler.model.plan import PhaseSpec, PlanControl, PlanSpec, PlanStrategy
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import Result, SchedulerState

NAMES = ("a", "b", "c", "d")
SPEC = a_spec()
STATE = a_running_state(SPEC)
OUTDATED = apply(
    STATE,
    TaskLaunched(replace(a_record(SPEC, "worker-0", "2"), config="old")),
    StatusStored(a_status("worker-0__2")),
)


def children(strategy, complete="", **options):
    """Children of which those in `complete` are complete, and the others open."""
    names = frozenset(NAMES) - set(complete)
    return Children(strategy, NAMES, names, lambda name: name in complete, **options)


@pytest.mark.parametrize(
    ("strategy", "complete", "expected"),
    [
        (PlanStrategy.SERIAL, "", "a"),
        (PlanStrategy.SERIAL, "ab", "c"),
        (PlanStrategy.SERIAL, "abcd", ""),
        (PlanStrategy.PARALLEL, "b", "acd"),
        (PlanStrategy.CANARY, "", ""),
        (PlanStrategy.PARALLEL_CANARY, "", ""),
    ],
)
def test_eligible_children_follow_strategy(strategy, complete: str, expected: str) -> None:
    assert expected == "".join(eligible(children(strategy, complete)))


def test_dependencies_wait_for_named_children() -> None:
    after = {"c": ("a", "b"), "d": ("c",)}

    assert ("b",) == eligible(children(PlanStrategy.DEPENDENCY, "a", after=after))
    assert ("c",) == eligible(children(PlanStrategy.DEPENDENCY, "ab", after=after))


def test_serial_waits_for_incomplete_child_that_is_not_open() -> None:
    """It may have been launched, and not run yet."""
    waiting = Children(PlanStrategy.SERIAL, NAMES, frozenset("cd"), lambda name: name == "a")

    assert () == eligible(waiting)


def test_released_canaries_run() -> None:
    released = children(PlanStrategy.CANARY, released=frozenset("a"))

    assert (("a",), ("b",)) == (eligible(released), held_back(released))


def test_all_released_canaries_continue_serially_or_in_parallel() -> None:
    serial, parallel = (
        children(strategy, "a", released=frozenset("a"), all_released=True)
        for strategy in (PlanStrategy.CANARY, PlanStrategy.PARALLEL_CANARY)
    )

    assert (("b",), ("b", "c", "d")) == (eligible(serial), eligible(parallel))
    assert () == held_back(serial)


def test_only_first_two_canaries_are_held_back() -> None:
    assert ("a", "b") == held_back(children(PlanStrategy.CANARY))
    assert () == held_back(children(PlanStrategy.SERIAL))


@pytest.mark.parametrize("unread", ["redeemed_tokens", "agent_failures", "configurations"])
def test_change_that_no_plan_reads_keeps_view(unread: str) -> None:
    state = a_running_state(a_spec(workers=1))
    view = view_of(state)

    assert view.after(with_fields(state, **{unread: {}})) is view


@pytest.mark.parametrize(
    "read", ["tasks", "statuses", "retired", "controls", "paused", "launches_to_replace", "delayed_tasks"]
)
def test_change_that_plans_read_makes_new_view(read: str) -> None:
    state = a_running_state(a_spec(workers=1))
    changed = with_fields(state, **{read: {}})

    view = view_of(state).after(changed)

    assert view.state.derived is changed.derived
    assert view.state.stored is changed.stored


@pytest.mark.parametrize(("restarted", "expected"), [(4, "update"), (5, "deploy")])
def test_restarted_task_gets_parameters_of_the_plan(restarted: int, expected: str) -> None:
    """A task that only returns after a loss keeps the parameters of its last plan."""
    spec = a_spec()
    deploy = index_of(spec).launch_plans[0]
    record = a_record(spec, "worker-0", serial=5, plan="update")
    control = PlanControl(restarted={("worker", "worker-0"): restarted})
    state = with_fields(apply(a_running_state(spec), TaskLaunched(record)), controls={"deploy": control})
    steps = tuple(step for _, step in deploy.steps() if step.task == "worker-0")

    _, plans = pending_gangs(view_of(state), [RunnableSteps(deploy, steps)])

    assert {"worker-0": expected} == plans


def lost(state, *names, ready=True):
    """These tasks have failed and will be relaunched, at once if they are `ready`."""
    for name in names:
        record = state.stored.tasks[name]
        failed = StatusStored(a_status(record.id, TaskState.FAILED))
        state = apply(state, failed, RecoveryDecided(replace_launch(state, record, "lost", 9.0)))
    waiting = state.derived.delayed_tasks
    return with_fields(state, delayed_tasks={k: v for k, v in waiting.items() if not ready or k not in names})


def gangs(state):
    return [[task.name for task in gang.tasks] for gang in view_of(state).gangs]


DATA = a_running_state(
    a_spec(
        strategy=Strategy.INDEPENDENT,
        jobs=(a_job(JobKind.DISPATCHER), a_job(JobKind.DATA_WORKER, 2), a_job(JobKind.WORKER)),
    )
)
DISPATCHER = next(name for name in DATA.stored.tasks if "dispatcher" in name)
READER = next(name for name, record in DATA.stored.tasks.items() if record.job is JobKind.DATA_WORKER)


def test_data_readers_wait_for_the_dispatcher() -> None:
    """They get its address at their launch."""
    missing = lost(lost(DATA, DISPATCHER, ready=False), READER)

    assert [[READER]] == gangs(lost(DATA, READER))
    assert [] == gangs(missing)


def test_lost_tasks_of_several_plans_are_launched_together() -> None:
    """The chief needs the address of the ps; a ps without back-off joins it."""
    state = a_running_state(a_spec(ps=2))

    assert [["ps-0", "chief-0"]] == [sorted(g, reverse=True) for g in gangs(lost(state, "ps-0", "chief-0"))]
    assert [] == gangs(lost(lost(state, "ps-0", ready=False), "chief-0"))


def test_interrupted_recovery_step_waits() -> None:
    state = lost(a_running_state(a_spec()), "worker-0", "worker-1")
    plan = view_of(state).progress["recovery"].plan
    (node, _) = plan.by_task["worker-0"]

    one, whole = (
        with_fields(state, controls={"recovery": PlanControl(interrupted=frozenset({where}))}) for where in (node, ())
    )

    assert [["worker-0", "worker-1"], ["worker-1"], []] == [
        sorted(name for gang in gangs(each) for name in gang) for each in (state, one, whole)
    ]


def test_released_phases_of_a_canary_plan_run() -> None:
    phases = tuple(PhaseSpec(name, name) for name in ("ps", "worker", "chief"))
    spec = a_spec(plans={"deploy": PlanSpec("deploy", PlanStrategy.CANARY, phases=phases)})

    def due(*released):
        control = {"deploy": PlanControl(released=frozenset(released), target=index_of(spec).target)}
        steps = view_of(with_fields(SchedulerState(spec), controls=control)).runnable
        return [step.name for item in steps for step in item.steps]

    assert [[], ["ps-0"], ["ps-0"]] == [due(), due(("ps",)), due(("ps",), ("*",))]


def test_released_canary_of_one_phase_does_not_count_in_another() -> None:
    """Both phases may have a step with the same name."""
    phases = tuple(PhaseSpec(name, "worker", PlanStrategy.CANARY) for name in ("first", "second"))
    control = PlanControl(released=frozenset({("first", "worker-0")}))
    spec = a_spec(plans={"train": PlanSpec("train", phases=phases)})
    progress = view_of(with_fields(SchedulerState(spec), controls={"train": control})).progress["train"]

    released = [step_children(progress, phase, frozenset()).released for phase in progress.plan.phases]

    assert [{"worker-0"}, set()] == released


@pytest.mark.parametrize(("plan", "expected"), [("deploy", ["worker-0", "worker-1"]), ("other", ["worker-0"])])
def test_serial_plan_continues_with_tasks_that_it_has_stopped(plan: str, expected: list[str]) -> None:
    """A task that another plan has stopped waits for its turn."""
    spec = a_spec(ps=0, chief=0, plans={"deploy": PlanSpec("deploy", PlanStrategy.SERIAL)})
    outdated = (TaskLaunched(a_record(spec, f"worker-{number}", config="old")) for number in (0, 1))
    state = apply(a_running_state(spec), *outdated, LaunchRetired(TaskId("worker-1__1"), plan))

    assert expected == [step.name for step in due_steps(view_of(state).progress["deploy"])]


def test_task_with_other_options_gets_parameters_of_the_plan() -> None:
    spec = a_spec()
    deploy = index_of(spec).launch_plans[0]
    steps = tuple(step for _, step in deploy.steps() if step.task == "worker-0")
    for config, expected in (("old", "deploy"), (index_of(spec).configs["worker-0"], "update")):
        record = a_record(spec, "worker-0", serial=5, plan="update", config=config)
        _, plans = pending_gangs(
            view_of(apply(a_running_state(spec), TaskLaunched(record))), [RunnableSteps(deploy, steps)]
        )
        assert {"worker-0": expected} == plans


def run_plans(state, now=100.0):
    return advance(state, now, view_of(state))


def test_outdated_launch_is_retired_and_killed() -> None:
    decision = run_plans(OUTDATED)

    assert (LaunchRetired("worker-0__2", "deploy"),) == decision.changes
    assert (Kill("worker-0__2", "a"),) == decision.calls


def test_nothing_happens_without_connection() -> None:
    decision = run_plans(with_fields(OUTDATED, connected=False))

    assert ((), ()) == (decision.changes, decision.calls)


def test_kill_is_repeated_until_launch_ends() -> None:
    first = run_plans(OUTDATED)
    early, late = (run_plans(first.state, 100.0 + KILL_INTERVAL - seconds) for seconds in (1.0, 0.0))
    ended = run_plans(apply(first.state, StatusStored(a_status("worker-0__2", TaskState.KILLED))), 200.0)

    assert ((), first.calls, ()) == (early.calls, late.calls, ended.calls)


def test_kill_deadline_is_cleared_without_launches() -> None:
    assert 0.0 == kill_tasks(with_fields(STATE, next_kill_at=5.0), (), 9.0).state.session.next_kill_at


def test_completed_deploy_completes_update() -> None:
    """Update has no work until the options change."""
    changes = run_plans(STATE).changes

    assert ["deploy", "update"] == [change.plan for change in changes if isinstance(change, PlanControlled)]
    assert {index_of(SPEC).target} == {change.control.completed for change in changes}
    assert () == run_plans(run_plans(STATE).state).changes


def test_decommissioned_task_is_killed_then_forgotten() -> None:
    smaller = replace(run_plans(STATE).state, spec=a_spec(workers=1))
    killing = run_plans(smaller)
    ended = apply(killing.state, StatusStored(a_status("worker-1__1", TaskState.KILLED)))

    assert LaunchRetired("worker-1__1", "decommission") in killing.changes
    assert TaskForgotten("worker-1") in run_plans(ended).changes
    assert "worker-1" not in run_plans(ended).state.stored.tasks


def test_nothing_is_relaunched_after_the_result() -> None:
    """The job has ended; the outdated launch ends with it, not for a plan."""
    ended = apply(OUTDATED, ResultDecided(Result(Verdict.SUCCEEDED, "done", 9.0)))

    for state in (ended, with_fields(OUTDATED, finished=True)):
        assert ((), ()) == (run_plans(state).changes, run_plans(state).calls)


def test_kills_are_repeated_by_their_own_time() -> None:
    """The next check is that of the oldest KILL."""
    worker, chief = (STATE.stored.tasks[name] for name in ("worker-0", "chief-0"))
    first = kill_tasks(STATE, (worker,), 100.0).state
    both = kill_tasks(with_fields(first, next_kill_at=0.0), (worker, chief), 100.0 + KILL_INTERVAL - 1)

    assert (Kill("chief-0__1", "a"),) == both.calls
    assert 100.0 + KILL_INTERVAL == both.state.session.next_kill_at
    assert {"worker-0__1": 100.0, "chief-0__1": 99.0 + KILL_INTERVAL} == both.state.session.kills
    assert both.state.session.kills == both.state.session.kill_requested_at


def test_rollout_is_incomplete_while_one_task_starts() -> None:
    """Also if the rest of the plan was forced."""
    starting = apply(STATE, StatusStored(a_status("worker-0__1", TaskState.STARTING)))
    control = PlanControl(forced=frozenset({("ps",)}), target=index_of(SPEC).target)

    for state in (starting, with_fields(starting, controls={"deploy": control})):
        assert () == run_plans(state).changes


def test_message_has_reason_of_stop() -> None:
    decommissioned = replace(run_plans(STATE).state, spec=a_spec(workers=1))

    assert "plan deploy: stopping worker-0 to launch it again" == run_plans(OUTDATED).outcomes[0].message
    messages = [outcome.message for outcome in run_plans(decommissioned).outcomes]
    assert "plan decommission: stopping worker-1 to decommission it" in messages


def test_deploy_completes_update_and_no_user_plan() -> None:
    plan = PlanSpec("some", phases=(PhaseSpec("first", "worker"),))
    changes = run_plans(a_running_state(a_spec(plans={"some": plan}))).changes

    assert ["deploy", "update"] == [change.plan for change in changes if isinstance(change, PlanControlled)]


def test_only_current_launches_are_killed() -> None:
    """A stopped launch may have been replaced or forgotten since."""
    replaced = with_fields(STATE, retired={"worker-0__0": "update", "worker-9__1": "update"})
    assert () == run_plans(replaced).calls
