"""Properties of offers and tasks that hold for all event histories.

The simulated Mesos also rejects answers to unknown or answered offers, launches without offered resources, repeated
launches, and tasks that run twice.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from builders import a_job, a_spec, needs
from simulation.mesos import an_agent
from simulation.world import World
from tf_executor.contract.states import TaskState
from tf_scheduler.core.plans.scheduling import view_of
from tf_scheduler.model.effects import Accept
from tf_scheduler.model.events import OffersReceived, StopRequested
from tf_scheduler.model.offer import Unavailability
from tf_scheduler.model.placement import Constraint, Operator
from tf_scheduler.model.spec import JobKind

CONSTRAINTS = [
    (),
    (Constraint("hostname", Operator.UNIQUE),),
    (Constraint("rack", Operator.MAX_PER, "2"),),
    (Constraint("rack", Operator.LIKE, "a|b"), Constraint("hostname", Operator.UNLIKE, "agent-0")),
    (Constraint("rack", Operator.GROUP_BY),),
]
agents = st.builds(
    lambda cpus, gpus, rack: {"cpus": cpus, "gpus": gpus, "attributes": {"rack": rack}},
    st.sampled_from([0.7, 1.3, 2.6, 4]),
    st.sampled_from([0, 0, 0, 2]),
    st.sampled_from("abc"),
)


class Offers(RuleBasedStateMachine):
    """One service on a cluster with random events."""

    @initialize(
        workers=st.integers(1, 4),
        ps=st.integers(0, 2),
        gpus=st.integers(0, 2),
        rules=st.sampled_from(CONSTRAINTS),
        machines=st.lists(agents, min_size=1, max_size=5),
    )
    def begin(self, workers, ps, gpus, rules, machines) -> None:
        jobs = (
            a_job(JobKind.PS, ps),
            a_job(JobKind.WORKER, workers, constraints=rules, section="worker"),
            a_job(JobKind.WORKER, gpus, needs=needs(gpus=1), section="gpu_worker", first_index=workers),
        )
        spec = a_spec(jobs=tuple(job for job in jobs if job.count))
        self.joined = self.calamities = 0
        self.world = World(spec)
        self.world.step = self.checked(self.world.step)  # type: ignore[method-assign]
        for machine in machines:
            self.join(machine)
        self.world.register()

    def checked(self, step):
        """Each decision launches a wanted gang as a whole or not at all."""

        def checked_step(event):
            gangs = view_of(self.world.state).gangs
            decision = step(event)
            calls = [call for call in decision.calls if isinstance(call, Accept)]
            names = {launch.record.name for call in calls for launch in call.launches}
            if isinstance(event, OffersReceived):
                for gang in gangs:
                    assert names & {task.name for task in gang.tasks} in (set(), {task.name for task in gang.tasks})
                assert names <= {task.name for gang in gangs for task in gang.tasks}
            return decision

        return checked_step

    @property
    def over(self):
        return self.world.state.process.finished

    @rule(machine=agents)
    def join(self, machine) -> None:
        """An agent joins."""
        agent = an_agent(f"agent-{self.joined}", **machine)
        self.world.mesos.agents[agent.id] = agent
        self.joined += 1

    @rule()
    def allocate(self) -> None:
        """The master offers free resources."""
        self.world.mesos.allocate(self.world.now)
        self.world.settle()

    @rule()
    def allocate_one_by_one(self) -> None:
        """The master offers the free resources of each agent alone."""
        for agent in list(self.world.mesos.agents.values()):
            if offer := self.world.mesos.offer_of(agent, self.world.now):
                self.world.step(OffersReceived((offer,)))
                self.world.settle()

    @rule(seconds=st.sampled_from([0.5, 3.0, 6.0, 30.0]))
    def wait(self, seconds) -> None:
        """Time passes, with the deadlines in between."""
        self.world.wait(seconds)

    @rule(seconds=st.integers(1, 15))
    def go_on(self, seconds) -> None:
        """Time passes, and the master offers free resources every second."""
        for _ in range(seconds):
            self.allocate()
            self.world.wait(1.0)

    @precondition(lambda self: self.world.mesos.offers)
    @rule(data=st.data())
    def rescind(self, data) -> None:
        """Mesos rescinds an offer."""
        self.world.mesos.rescind(data.draw(st.sampled_from(sorted(self.world.mesos.offers))))
        self.world.settle()

    @precondition(lambda self: self.world.mesos.offers)
    @rule(data=st.data())
    def rescind_late(self, data) -> None:
        """Mesos rescinds an offer, and the scheduler receives it after the next offers."""
        self.world.mesos.rescind(data.draw(st.sampled_from(sorted(self.world.mesos.offers))))
        self.world.mesos.events.rotate(1)
        self.world.mesos.allocate(self.world.now)
        self.world.settle()

    @precondition(lambda self: self.world.mesos.live())
    @rule()
    def run(self) -> None:
        """All tasks run."""
        for task in self.world.mesos.live().values():
            self.world.mesos.report(task.launch.record.id, TaskState.RUNNING)
        self.world.settle()

    @precondition(lambda self: self.world.mesos.live() and self.calamities < 2)
    @rule(data=st.data(), state=st.sampled_from([TaskState.FAILED, TaskState.FINISHED, TaskState.LOST]))
    def end(self, data, state) -> None:
        """A task ends."""
        self.calamities += 1
        name = data.draw(st.sampled_from(sorted(self.world.mesos.live())))
        self.world.mesos.report(self.world.mesos.live()[name].launch.record.id, state)
        self.world.settle()

    @precondition(lambda self: self.world.mesos.agents and self.calamities < 2)
    @rule(data=st.data())
    def lose(self, data) -> None:
        """An agent is removed."""
        self.calamities += 1
        self.world.mesos.lose(data.draw(st.sampled_from(sorted(self.world.mesos.agents))).removesuffix("-id"))
        self.world.settle()

    @precondition(lambda self: self.world.mesos.agents and self.world.mesos.subscribed and self.calamities < 2)
    @rule(data=st.data(), start=st.sampled_from([-10.0, 60.0, 200_000.0]))
    def maintain(self, data, start) -> None:
        """An operator plans a maintenance window."""
        self.calamities += 1
        name = data.draw(st.sampled_from(sorted(self.world.mesos.agents))).removesuffix("-id")
        self.world.mesos.maintain(name, Unavailability(self.world.now + start))
        self.world.settle()

    @precondition(lambda self: not self.over)
    @rule()
    def reconnect(self) -> None:
        """The master disconnects, and the scheduler subscribes again."""
        self.world.disconnect()
        self.world.register()

    @precondition(lambda self: not self.over)
    @rule()
    def restart(self) -> None:
        """The scheduler restarts on its stored state."""
        self.world.restart()
        self.world.register()

    @invariant()
    def never_more_than_asked(self) -> None:
        assert len(self.world.mesos.live()) <= self.world.state.spec.task_count

    @invariant()
    def every_offer_is_held_or_answered(self) -> None:
        offers = set(self.world.state.session.round.offers)
        assert offers == set(self.world.mesos.offers)

    @invariant()
    def no_offer_is_held_longer_than_promised(self) -> None:
        limit, held = self.world.state.spec.hold_seconds, self.world.state.session.round
        assert not held.offers or self.world.now <= held.since + limit

    @invariant()
    def no_constraint_is_broken(self) -> None:
        """UNIQUE, MAX_PER, LIKE, UNLIKE hold for running tasks; GROUP_BY depends on order."""
        jobs = {task.name: task.job for task in self.world.state.spec.tasks()}
        values: dict[tuple[str, Constraint], list[str | None]] = {}
        for name, task in self.world.mesos.live().items():
            agent = self.world.mesos.agents[task.launch.record.agent_id]
            for constraint in jobs[name].constraints:
                value = agent.hostname if constraint.field == "hostname" else agent.more["attributes"]["rack"]
                values.setdefault((jobs[name].group, constraint), []).append(value)
        for (_, constraint), value in values.items():
            assert not _breaks(constraint, value), (constraint, value)

    def teardown(self) -> None:
        """Every uninstall completes."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.step(StopRequested("enough"))
        world.settle()
        for _ in range(200):
            if self.over:
                break
            world.mesos.allocate(world.now)
            world.settle()
            world.wait(1.0)
        assert self.over


def _breaks(constraint: Constraint, values: list[str | None]) -> bool:
    most = {"UNIQUE": 1, "MAX_PER": 2}.get(constraint.operator.value)
    if most is not None:
        return any(values.count(value) > most for value in values)
    if constraint.operator is Operator.LIKE:
        return not set(values) <= {"a", "b"}
    return constraint.operator is Operator.UNLIKE and "agent-0" in values


TestOffers = Offers.TestCase
TestOffers.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
