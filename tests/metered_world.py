"""Simulated service with metrics, and a short run that produces every metric."""

from __future__ import annotations

from dataclasses import replace

from builders import a_job, a_spec, needs
from simulation import send
from simulation.mesos import an_agent
from simulation.world import World, play
from tf_executor.contract.reports import Progress
from tf_executor.contract.states import TaskState
from tf_scheduler.api.views.plan_messages import plans
from tf_scheduler.core.scheduler import handle
from tf_scheduler.metrics.meter import LoopMetrics, Meter
from tf_scheduler.model.effects import Suppress
from tf_scheduler.model.events import CallFailed, EventSkipped, ProgressReported
from tf_scheduler.model.spec import JobKind


class MeteredWorld(World):
    """World with metrics from its first decision."""

    meter: Meter | None = None

    def make_runner(self, state, **options):
        if self.meter is None:
            metrics = LoopMetrics(state)
            current = lambda: {plan.name: plan for plan in plans(self.state)}  # noqa: E731
            self.meter = Meter(metrics, lambda: self.state, current, reasons=lambda: ["store"])
            options |= {"decide": metrics.decide(handle), "store": metrics.store(self.store)}
        return super().make_runner(state, **options)

    def step(self, event):
        decision = super().step(event)
        self.meter.loop.count(event, decision)
        return decision

    def samples(self):
        """Return (name, labels, value) of each Prometheus sample."""
        families = self.meter.loop.registry.collect()
        return [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]

    def value(self, name, **labels):
        """Return the value of a sample; 0 if it does not exist."""
        found = [value for known, has, value in self.samples() if known == f"tensorflow_{name}" and has == labels]
        return found[0] if found else 0


def a_life():
    """Deployed, a worker lost and back, progress, problems, a reconnect."""
    jobs = (a_job(JobKind.PS), a_job(JobKind.WORKER, 2, needs=needs(mem=64, gpus=1)))
    spec = a_spec(jobs=(*jobs, a_job(JobKind.CHIEF)))
    agents = (an_agent("agent-1", gpus=2), an_agent("agent-2"))
    world = play(MeteredWorld(spec, *agents), send.register(), send.offers(), send.running())
    progress = Progress(1, world.now, 120, 1000, 0.5, 3840, 12.5, 400.0, seconds_left=70.4)
    world.step(ProgressReported(world.id_of("worker-0"), progress))
    world.step(ProgressReported(world.id_of("chief-0"), replace(progress, epoch=2, loss=float("nan"), total=None)))
    play(world, send.status("worker-1", TaskState.FAILED, signal=9, message="killed by signal 9"))
    play(world, send.offers(), send.running())
    world.step(EventSkipped("UPDATE", "missing field 'task_id'"))
    world.step(CallFailed(Suppress(), "Unauthorized", 401))
    world.disconnect()
    world.register()
    world.meter.loop.request("GET", 200)
    return world
