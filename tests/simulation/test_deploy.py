"""Deploy: from the first subscription to a running cluster and its teardown."""

from __future__ import annotations

from typing import Any

import pytest

from builders import a_spec
from simulation import expect, send
from simulation.mesos import RuleBroken, an_agent
from simulation.world import World, play
from tf_executor.contract.states import TaskState, Verdict
from tf_scheduler.model.effects import Accept, Decline, Kill

ALL = ("ps-0", "worker-0", "worker-1", "chief-0")


def test_job_runs_until_chief_finishes() -> None:
    """The gang launches together, offers are suppressed, and the chief ends the job."""
    play(
        World(a_spec(), an_agent("agent-1", cpus=2), an_agent("agent-2", cpus=2)),
        send.register(),
        expect.quiet(),
        send.offers(),
        expect.launched(*ALL),
        expect.suppressed(),
        send.running(),
        expect.alive(*ALL),
        send.status("chief-0", TaskState.FINISHED),
        expect.killed("ps-0", "worker-0", "worker-1"),
        expect.result(Verdict.SUCCEEDED),
        expect.torn_down(),
    )


def test_gang_waits_for_agent_that_joins_late() -> None:
    """Offers are held briefly, released with reasons, and used once the gang fits."""
    play(
        World(a_spec(), an_agent("agent-1", cpus=2)),
        send.register(),
        send.offers(),
        expect.launched(),
        expect.holds(1),
        send.wait(),
        expect.outcome("is pending"),
        expect.declined(1),
        send.wait(6),
        send.agent(an_agent("agent-2", cpus=2)),
        expect.launched(*ALL),
    )


def test_restarted_scheduler_takes_over_its_tasks() -> None:
    """No task is launched twice, and the job ends as without the crash."""
    play(
        World(a_spec(), an_agent()),
        send.register(),
        send.offers(),
        send.running("ps-0", "worker-0"),
        send.restart(),
        expect.reconciled(*ALL),
        expect.launched(),
        send.running(),
        expect.alive(*ALL),
        send.status("chief-0", TaskState.FINISHED),
        expect.torn_down(),
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (Decline(("offer-99",), 1.0), "never made"),
        (Accept(("offer-99",), (), 1.0), "never made"),
    ],
)
def test_simulated_mesos_rejects_broken_rules(call: Any, words: Any) -> None:
    """Otherwise the scenarios would prove nothing."""
    world = play(World(a_spec(), an_agent(cpus=1)), send.register())

    with pytest.raises(RuleBroken, match=words):
        world.mesos.perform(call, world.now)


def test_simulated_mesos_rejects_call_without_subscription() -> None:
    """Mesos answers 403."""
    world = World(a_spec(), an_agent())

    with pytest.raises(RuleBroken, match="not subscribed"):
        world.mesos.perform(Kill("worker-0__1", "agent-1-id"), world.now)
