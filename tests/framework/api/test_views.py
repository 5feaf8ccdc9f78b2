"""Views of a state: keys and codes of the DC/OS SDK."""

from dataclasses import replace

import pytest

from builders import a_running_state, a_spec, with_fields
from kit.api import a_record, launched, registered
from simulation import send
from simulation.mesos import an_agent
from simulation.world import World, play
from tf_executor.contract.reports import Progress, Usage
from tf_executor.contract.states import TaskState, Verdict
from tf_scheduler.api.views import configurations, debug, plans, pods, service, tasks, training
from tf_scheduler.api.views.base import Snapshot, View
from tf_scheduler.api.views.overview import overview
from tf_scheduler.api.views.reasons import texts
from tf_scheduler.core.connection_problems import clock_time
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.plan import PlanControl
from tf_scheduler.model.resources import Resource
from tf_scheduler.model.secrets import SecretDelivery, SecretExposure
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import RefusedCalls, Result, SchedulerState
from tf_scheduler.model.task import AbandonedLaunch, AgentFailures, Cause, PodVerb, Recovery

RUNNING, FAILED, FINISHED = TaskState.RUNNING, TaskState.FAILED, TaskState.FINISHED


@pytest.mark.parametrize(
    ("state", "code", "status"),
    [
        (launched(), 202, "PENDING"),
        (launched(None), 202, "PENDING"),
        (launched(None, None), 202, "STARTING"),
        (launched(RUNNING, FAILED), 417, "ERROR"),
    ],
)
def test_plan_code_is_its_status(state, code: int, status: str) -> None:
    """200 complete, 202 in progress, 417 error."""
    view = plans.plan(Snapshot(state), {"plan": "deploy"})

    assert (code, status) == (view.code, view.body["status"])


def test_plan_has_sdk_keys_and_stable_ids() -> None:
    """The `dcos` command reads the keys."""
    view = plans.plan(Snapshot(launched(RUNNING)), {"plan": "deploy"})

    assert {"phases", "errors", "status", "strategy"} == view.body.keys()
    assert [{"id", "name", "steps", "status", "strategy"}] * 2 == [phase.keys() for phase in view.body["phases"]]
    steps = [step for phase in view.body["phases"] for step in phase["steps"]]
    assert [{"id", "status", "name", "message"}] * 2 == [step.keys() for step in steps]
    assert [("ps-0", "COMPLETE"), ("chief-0", "PENDING")] == [(step["name"], step["status"]) for step in steps]
    assert view == plans.plan(Snapshot(launched(RUNNING)), {"plan": "deploy"})
    assert 4 == len({part["id"] for part in [*steps, *view.body["phases"]]})


def test_plan_errors_have_failed_steps() -> None:
    """With the message of Mesos."""
    view = plans.plan(Snapshot(launched(RUNNING, FAILED)), {"plan": "deploy"})

    assert 1 == len(view.body["errors"])
    assert "failed" in view.body["errors"][0]


def test_paused_task_has_override_in_all_views() -> None:
    """PAUSING, then PAUSED while its resources are kept, then STARTING when resumed."""
    state = launched(RUNNING, RUNNING, paused={"chief-0": 5.0})
    pausing = Snapshot(state)
    kept = with_fields(
        state,
        tasks={
            **state.stored.tasks,
            "chief-0": replace(state.stored.tasks["chief-0"], is_placeholder=True, group="chief"),
        },
    )
    paused, resumed = Snapshot(kept), Snapshot(with_fields(kept, paused={}))

    words = [
        pods.status(snapshot, {"pod": "chief-0"}).body["tasks"][0]["status"] for snapshot in (pausing, paused, resumed)
    ]
    assert ["PAUSING", "PAUSED", "STARTING"] == words
    assert "PAUSED" == tasks.task(paused, {"name": "chief-0"}).body["status"]
    assert "PAUSED" == overview(Snapshot(kept)).task("chief-0").state.upper()
    body = plans.plan(paused, {"plan": "deploy"}).body
    assert ("IN_PROGRESS", "PAUSED") == (body["status"], body["phases"][1]["steps"][0]["status"])
    (waits,) = tasks.pending(paused, {}).body["tasks"]
    assert ("chief-0", "deploy", "PAUSED") == (waits["name"], waits["plan"], waits["status"])
    assert ["its resources on agent-1 are kept; paused by an operator"] == waits["reasons"]
    known = with_fields(kept, controls={"deploy": PlanControl(completed="some options")})
    view = service.health(Snapshot(known), {"verbose": True})
    assert (205, ["paused until resumed: chief-0"]) == (view.body["value"], view.body["reasons"])
    (launch,) = pods.info(paused, {"pod": "chief-0"}).body
    assert "chief-0 of digits is paused" in launch["info"]["command"]["value"]


@pytest.mark.parametrize(
    ("state", "value"),
    [
        (launched(framework_id=None), 318),
        (launched(), 204),
        (launched(None), 204),
        (launched(None, None), 202),
        (launched(RUNNING, RUNNING), 200),
        (launched(FINISHED, FINISHED, finished=True), 200),
        (launched(RUNNING, FAILED), 500),
    ],
)
def test_health_is_the_sdks_code(state, value: int) -> None:
    """As body and as HTTP status; the reason only with `verbose`."""
    assert View({"value": value}, value) == service.health(Snapshot(state), {})
    verbose = service.health(Snapshot(state), {"verbose": True})
    assert verbose.body["reasons"]
    # HTTP allows no body for these.
    assert (value, 200 if value in (204, 205) else value) == (verbose.body["value"], verbose.code)


def test_relaunched_task_is_a_reason_until_it_runs() -> None:
    """Although no plan has work to do."""
    world = play(World(a_spec(workers=0), an_agent("a")), send.register(), send.offers(), send.running())
    play(world, send.status("chief-0", FAILED, signal=9), send.offers())
    assert_hindered(world.state, "chief-0 started at ", "their files are fetched")

    play(world, send.status("chief-0", TaskState.STARTING, message="the download runs"))
    assert_hindered(world.state, "chief-0 started at ", "the download runs")

    play(world, send.running(), send.status("chief-0", TaskState.UNREACHABLE, message="its agent is away"))
    assert_hindered(world.state, "chief-0 is unreachable: ", "its agent is away")


def test_restore_is_named_since_its_first_launch() -> None:
    """Each relaunch would otherwise hide how long the task has not run."""
    world = play(World(a_spec(workers=0), *map(an_agent, "abcd")), send.register(), send.offers())
    since = clock_time(world.state.stored.tasks[TaskName("chief-0")].launched_at)
    for _ in range(2):
        play(world, send.status("chief-0", TaskState.STARTING), send.wait(90.0))
        play(world, send.status("chief-0", FAILED, failed_stage="storage"), send.wait(9.0), send.offers())
    record = world.state.stored.tasks[TaskName("chief-0")]
    assert since != clock_time(record.launched_at)
    state = with_fields(world.state, storage_errors={record.name: (record.id, "s3://a: no answer")})
    expected = f"chief-0 restores checkpoints since {since}: s3://a: no answer"
    assert expected in tasks.pending(Snapshot(state), {}).body["reasons"]
    assert expected in service.health(Snapshot(state), {"verbose": True}).body["reasons"]
    assert (expected,) == overview(Snapshot(state)).notices

    play(
        world, send.running(), send.wait(90.0), send.status("chief-0", FAILED, signal=9), send.wait(9.0), send.offers()
    )
    reason = tasks.pending(Snapshot(world.state), {}).body["reasons"][0]
    assert reason.startswith("chief-0 started at ")
    assert since not in reason


def test_restore_is_named_while_other_tasks_wait_for_offers() -> None:
    """The reasons of the other tasks do not say that a storage has to answer."""
    state = launched(TaskState.STARTING)
    launch = state.stored.tasks[TaskName("ps-0")].id
    state = with_fields(state, storage_errors={TaskName("ps-0"): (launch, "s3://a: no answer")})
    (notice,) = overview(Snapshot(state)).notices

    assert notice.startswith("ps-0 restores checkpoints since ")


def assert_hindered(state: SchedulerState, start: str, end: str) -> None:
    """Assert that health has 205, and that views have the reason."""
    snapshot = Snapshot(state)
    assert 205 == service.health(snapshot, {}).code
    reasons = tasks.pending(snapshot, {}).body["reasons"]
    assert (True, True) == (reasons[0].startswith(start), reasons[0].endswith(end))
    # While tasks start, the overview shows that as their activity.
    assert overview(snapshot).notices or "fetching" == overview(snapshot).activity


def test_exposed_secrets_are_reported() -> None:
    """By health and overview: up to five agents, then those without executor login."""
    taken = {f"a-{n}": SecretExposure(f"a-{n}", f"agent-{n}", ("KEY",), f"worker-{n}__1", "x", 5.0) for n in range(7)}
    optional = replace(launched().spec, secret_delivery=SecretDelivery(requires_executor_login=False))
    exposed = launched(RUNNING, RUNNING, exposures=taken, unprotected_agents={"a-1": "agent-1", "a-2": "agent-2"})
    state = replace(exposed, spec=optional)
    for shown in (state, replace(state, stored=replace(state.stored, result=Result(Verdict.FAILED, "x", 9.0)))):
        first, *notices = service.health(Snapshot(shown), {"verbose": True}).body["reasons"][1:8]
        assert "secrets KEY may have been taken by another process on agent agent-0: worker-0 x" in first
        assert "secrets may have been taken on 2 more agents" == notices[4]
        assert "agents get secrets, but may not authenticate executors: agent-1, agent-2 (option" in notices[5]
    assert (first, *notices) == overview(Snapshot(state)).notices
    assert 6 == len(overview(Snapshot(exposed)).notices)


def test_checkpoints_that_are_not_stored_are_reported() -> None:
    """By health, which stays healthy, and by the overview."""
    state = launched(RUNNING, RUNNING)
    launch = state.stored.tasks[TaskName("chief-0")].id
    state = with_fields(state, storage_errors={TaskName("chief-0"): (launch, "no such bucket")})
    health = service.health(Snapshot(state), {"verbose": True})
    assert (200, ["running", "chief-0: no such bucket"]) == (health.code, health.body["reasons"])
    assert ("chief-0: no such bucket",) == overview(Snapshot(state)).notices


def test_launch_that_may_still_run_is_reported() -> None:
    """By health and tasks; by the uninstall plan while the removal waits for it."""
    launch = AbandonedLaunch("ps-0__0", "a-2", "agent-2", 5.0)
    running = launched(RUNNING, RUNNING, abandoned={launch.id: launch})
    result = Result(Verdict.STOPPED, "x", 9.0)
    ended = launched(FINISHED, FINISHED, abandoned={launch.id: launch}, result=result, waits_for_agents=True)
    text = "ps-0 may still run on agent-2"

    assert [text] == tasks.tasks(Snapshot(running), {}).body["may_still_run"]
    assert ["running", text] == service.health(Snapshot(running), {"verbose": True}).body["reasons"]
    uninstall = plans.plan(Snapshot(ended, uninstalling=True), {"plan": "deploy"}).body["phases"][-1]["steps"][-1]
    assert ([text], False) == (uninstall["waits_for"], "left_behind" in uninstall)
    waits = "the removal of the framework waits up to 600 s for agents that do not answer"
    assert f"{waits}: {text}" == uninstall["message"]
    assert waits in service.health(Snapshot(ended, uninstalling=True), {"verbose": True}).body["reasons"][1]


@pytest.mark.parametrize(
    ("state", "code", "statuses"),
    [
        (launched(RUNNING, RUNNING), 202, ["PENDING", "PENDING", "PENDING"]),
        (launched(RUNNING, FINISHED), 202, ["IN_PROGRESS", "PENDING", "PENDING"]),
        (launched(FINISHED, FINISHED), 202, ["COMPLETE", "PENDING", "PENDING"]),
        (launched(FINISHED, FINISHED, finished=True), 202, ["COMPLETE", "COMPLETE", "STARTING"]),
        (launched(FINISHED, FINISHED, finished=True, is_erased=True), 200, ["COMPLETE"] * 3),
        (launched(framework_id=None, finished=True, is_erased=True), 200, ["COMPLETE"] * 3),
    ],
)
def test_uninstall_plan_completes_last(state, code: int, statuses) -> None:
    """DC/OS removes the app at 200, so not earlier; health stays 200 meanwhile."""
    snapshot = Snapshot(state, uninstalling=True)

    view = plans.plan(snapshot, {"plan": "deploy"})

    assert (code, statuses) == (view.code, [phase["status"] for phase in view.body["phases"]])
    assert ["deploy"] == plans.names(snapshot, {}).body
    assert 200 == service.health(snapshot, {}).code


def test_rejected_options_are_reported() -> None:
    """In the update plan and by health; the running configuration stays."""
    snapshot = Snapshot(launched(RUNNING, RUNNING, rejected=("service.role: cannot change",)))

    view = plans.plan(snapshot, {"plan": "deploy"})

    assert (417, "ERROR", ["service.role: cannot change"]) == (view.code, view.body["status"], view.body["errors"])
    assert ["COMPLETE", "COMPLETE"] == [phase["status"] for phase in view.body["phases"]]
    assert 200 == plans.plan(snapshot, {"plan": "recovery"}).code
    answer = service.health(snapshot, {"verbose": True})
    assert (500, ["new options rejected: service.role: cannot change"]) == (answer.code, answer.body["reasons"])
    assert ["service.role: cannot change"] == configurations.target(snapshot, {}).body["rejected"]
    assert "rejected" not in configurations.target(Snapshot(launched(RUNNING)), {}).body


def test_waiting_update_is_reported_by_health() -> None:
    """The deploy plan itself stays complete."""
    state = launched(RUNNING, RUNNING)
    controls = {"deploy": PlanControl(completed="before"), "update": PlanControl(interrupted=frozenset({()}))}
    tasks = {name: replace(record, config="before") for name, record in state.stored.tasks.items()}
    answer = service.health(Snapshot(with_fields(state, controls=controls, tasks=tasks)), {"verbose": True})

    assert (207, ["updating: waiting for an operator"]) == (answer.code, answer.body["reasons"])


def test_task_being_killed_is_reported() -> None:
    """So that an operator sees which task does not end."""
    state = launched(RUNNING)
    (record,) = state.stored.tasks.values()

    view = plans.plan(Snapshot(with_fields(state, kills={record.id: 1.0}), uninstalling=True), {"plan": "deploy"})

    assert "STARTING" == view.body["phases"][0]["steps"][0]["status"]
    assert record.id in view.body["phases"][0]["steps"][0]["message"]


def test_framework_id_is_a_list() -> None:
    """Cosmos compares the framework id before and after an uninstall."""
    assert ["framework-1"] == service.framework_id(Snapshot(launched()), {}).body
    assert [] == service.framework_id(Snapshot(launched(framework_id=None)), {}).body


def test_health_reports_unavailable_store() -> None:
    """Before every other state, because scheduling is paused."""
    snapshot = Snapshot(launched(RUNNING, RUNNING), store_error="the disk is full")

    view = service.health(snapshot, {"verbose": True})

    assert (319, ["state store unavailable, scheduling paused: the disk is full"]) == (view.code, view.body["reasons"])


@pytest.mark.parametrize(
    ("state", "recovery", "named"),
    [
        (TaskState.DROPPED, {"cause": Cause.NOT_STARTED}, True),
        (TaskState.LOST, {"cause": Cause.INFRASTRUCTURE, "must_move": True}, True),
        (None, {"cause": Cause.NOT_STARTED, "launch": "ps-0__0"}, True),
        (RUNNING, {"cause": Cause.NOT_STARTED, "launch": "ps-0__0"}, False),
        (TaskState.DROPPED, {"cause": Cause.NOT_STARTED, "consecutive_failures": 2}, False),
        (FAILED, {"cause": Cause.USER_ERROR}, False),
    ],
)
def test_health_names_task_whose_launches_do_not_start(state, recovery, named: bool) -> None:
    """Such launches are never counted, so nothing else reports them."""
    snapshot = launched(state)
    launch = snapshot.stored.tasks["ps-0"].id
    item = Recovery("ps-0", launch, Cause.NOT_STARTED, "ps-0 was dropped: disk full", 1.0, 1.0, 1.0)
    item = replace(item, **{"consecutive_failures": 3, **recovery})

    view = service.health(Snapshot(with_fields(snapshot, recoveries={"ps-0": item})), {"verbose": True})

    expected = "3 launches of ps-0 did not start: ps-0 was dropped: disk full"
    assert named is (expected in view.body["reasons"])


def test_ignored_stop_is_a_reason() -> None:
    """The KILL may be lost with the agent, and nothing says so."""
    world = World(a_spec())
    play(world, send.register(), send.agent(an_agent("agent-1", cpus=8)), send.offers(), send.running())
    world.mesos.kills_at_once = False
    play(world, send.pod(PodVerb.RESTART, "worker-0"))
    (asked,) = world.state.session.kill_requested_at.values()
    text = "worker-0 on agent-1 was asked to stop at"

    def shown(after: float) -> bool:
        return any(each.startswith(text) for each in texts(Snapshot(world.state, now=asked + after)))

    grace = world.state.spec.job_of(JobKind.WORKER, 0).settings.kill_grace
    assert (False, True) == (shown(grace), shown(grace + 11))
    play(world, send.killed("worker-0"))
    assert not shown(grace + 11)


def test_health_names_few_tasks() -> None:
    """A sentence for each of a thousand tasks would hide the state of the service."""
    spec = a_spec(workers=8)
    records = [a_record(spec, task.name) for task in spec.tasks()]
    items = {
        record.name: Recovery(record.name, record.id, Cause.NOT_STARTED, "x", 1.0, 1.0, 1.0, consecutive_failures=3)
        for record in records
    }
    state = registered(spec, tasks={record.name: record for record in records}, recoveries=items)

    reasons = service.health(Snapshot(state), {"verbose": True}).body["reasons"]

    assert (8, f"{len(records) - 5} other tasks do not start either") == (len(reasons), reasons[-1])


def test_problems_with_mesos_are_listed() -> None:
    """The command `doctor` reads them; an agent without failures is not listed."""
    failures = {"a": AgentFailures("a", "host-a", (5.0,), 905.0), "b": AgentFailures("b", "host-b", killed_at=5.0)}
    state = launched(
        refused_calls=RefusedCalls("401 no", 7.0, 3),
        clock_drift=-40.0,
        abandoned={"ps-0__1": AbandonedLaunch("ps-0__1", "a", "host-a", 9.0)},
        agent_failures=failures,
        connected=True,
    )

    assert {
        "connected": True,
        "refused_calls": {"cause": "401 no", "since": 7.0, "count": 3},
        "clock_drift": -40.0,
        "may_still_run": ["ps-0 may still run on host-a"],
        "failing_agents": [{"agent_id": "a", "hostname": "host-a", "failures": [5.0], "avoided_until": 905.0}],
    } == debug.mesos(Snapshot(state), {}).body
    assert debug.mesos(Snapshot(launched()), {}).body["refused_calls"] is None


@pytest.mark.parametrize(
    ("speeds", "whole", "by_job"),
    [
        ({}, None, (None, None)),
        ({"chief-0": ("task", 100.0), "worker-0": (None, 90.0), "worker-1": ("task", 80.0)}, 270.0, (100.0, 170.0)),
        ({"chief-0": ("job", 200.0), "worker-0": ("job", 201.0), "worker-1": ("job", 202.0)}, 200.0, (200.0, 201.0)),
        ({"worker-1": ("job", 202.0), "chief-0": ("task", None)}, 202.0, (None, 202.0)),
    ],
)
def test_examples_of_the_whole_job_count_once(speeds, whole, by_job) -> None:
    """With MultiWorkerMirroredStrategy each worker reports the examples of all."""
    state = a_running_state(a_spec(workers=2, ps=0, chief=1))
    reports = {
        state.stored.tasks[TaskName(name)].id: Progress(1, 1.0, of=of, examples_per_second=speed)
        for name, (of, speed) in speeds.items()
    }

    body = training.progress(Snapshot(with_fields(state, progress=reports)), {}, 0).body

    assert whole == body["examples_per_second"]
    assert by_job == tuple(body["jobs"][job]["examples_per_second"] for job in ("chief", "worker"))


@pytest.mark.parametrize(
    ("usage", "cpus", "memory", "is_near"),
    [
        (None, "0.6", "1 GB", False),
        (Usage(310.0, 310.0, 0.31), "0.31 of 0.6", "310 MB of 1 GB", False),
        (Usage(1080.0, 1080.0), "0.6", "1.05 of 1 GB", True),
        (Usage(512.0), "0.6", "512 MB of 1 GB at most", False),
    ],
)
def test_task_has_its_amounts_as_texts(usage, cpus: str, memory: str, is_near: bool) -> None:
    """So that the page and terminals show the same."""
    record = a_record(a_spec(), "ps-0", resources=(Resource("cpus", 600), Resource("mem", 1_088_000)))
    usages = {} if usage is None else {record.name: (record.id, usage)}
    answer = tasks.task(Snapshot(registered(tasks={record.name: record}, usage=usages)), {"name": record.name})

    assert isinstance(answer, View)
    assert {"resources": "0.6 cpus, 1.06 GB", "cpus": cpus, "memory": memory} == answer.body["texts"]
    assert is_near is answer.body["near_limit"]


@pytest.mark.parametrize(("cpus", "now", "is_idle"), [(0.01, 121.0, True), (0.01, 119.0, False), (0.5, 121.0, False)])
def test_job_whose_programs_only_wait_is_named(cpus: float, now: float, is_idle: bool) -> None:
    """Every worker called `server.join()`, and the job ran indefinitely."""
    state = a_running_state(a_spec())
    records = [replace(record, launched_at=0.0) for record in state.stored.tasks.values()]
    usage = {record.name: (record.id, Usage(100.0, 90.0, cpus)) for record in records}
    shown = texts(Snapshot(with_fields(state, tasks={each.name: each for each in records}, usage=usage), now=now))

    assert is_idle is any(text.startswith("no task trains: no program has used a CPU") for text in shown), shown
