"""Options of `plans` to the plans of the spec."""

from __future__ import annotations

from tf_scheduler.core.state.spec_index import index_of
from tf_scheduler.model.plan import PhaseSpec, PlanSpec, PlanStrategy
from tf_scheduler.options.load import resolve
from tf_scheduler.options.spec import to_spec

SERIAL, PARALLEL, DEPENDENCY = PlanStrategy.SERIAL, PlanStrategy.PARALLEL, PlanStrategy.DEPENDENCY
JOBS = {
    "service": {"command": "x", "strategy": "parameter_server"},
    "parameter_server": {"count": 1},
    "worker": {"count": 2},
    "chief": {"count": 1},
}


def spec(**plans):
    return to_spec(resolve({**JOBS, "plans": plans}))


def shape(plan):
    return [(phase.name, phase.strategy, [step.name for step in phase.steps]) for phase in plan.phases]


def test_default_plans_are_parallel() -> None:
    """One phase per section; phases and steps in parallel, as one gang."""
    deploy, update = index_of(spec()).launch_plans

    expected = [
        ("parameter_server", PARALLEL, ["ps-0"]),
        ("worker", PARALLEL, ["worker-0", "worker-1"]),
        ("chief", PARALLEL, ["chief-0"]),
    ]
    assert expected == shape(deploy) == shape(update)
    assert (PARALLEL, True, PARALLEL, True) == (deploy.strategy, deploy.gang, update.strategy, update.gang)


def test_canary_plan_has_canary_phases() -> None:
    deploy, update = index_of(spec(update="canary")).launch_plans

    assert {PARALLEL} == {phase.strategy for phase in deploy.phases}
    assert {PlanStrategy.CANARY} == {phase.strategy for phase in update.phases}
    assert SERIAL is update.strategy


def test_phases_and_dependencies_are_configurable() -> None:
    """An update without phases has those of deploy; `after` makes dependencies."""
    phases = [
        {"plan": "deploy", "phase": "train", "job": "worker", "strategy": "serial", "tasks": "1, 0", "after": "serve"},
        {"plan": "deploy", "phase": "serve", "job": "parameter_server"},
        {"plan": "retune", "phase": "again", "job": "worker", "tasks": "1"},
        {"plan": "retune", "phase": "lead", "job": "chief"},
    ]

    loaded = spec(deploy="serial", gang=False, phases=phases)

    after = {"train": ("serve",), "serve": ()}
    listed = (PhaseSpec("train", "worker", SERIAL, (1, 0)), PhaseSpec("serve", "parameter_server"))
    retune = (PhaseSpec("again", "worker", PARALLEL, (1,)), PhaseSpec("lead", "chief"))
    assert loaded.plans == {
        "deploy": PlanSpec("deploy", DEPENDENCY, listed, after, gang=False),
        "update": PlanSpec("update", DEPENDENCY, listed, after, gang=False),
        "retune": PlanSpec("retune", SERIAL, retune, {"again": (), "lead": ()}, gang=False),
    }
    plans = {plan.name: plan for plan in index_of(loaded).launch_plans}
    assert [("train", SERIAL, ["worker-1", "worker-0"]), ("serve", PARALLEL, ["ps-0"])] == shape(plans["deploy"])
