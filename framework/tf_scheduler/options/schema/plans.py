"""Schema of `plans`: order of launches and updates, and custom plans."""

from __future__ import annotations

from tf_scheduler.model.plan import PlanStrategy

from .fields import Boolean, RecordList, Section, String
from .jobs import JOBS

#: `dependency` follows from `after` and is not an option.
ORDERS = tuple(item.value for item in PlanStrategy if item is not PlanStrategy.DEPENDENCY)


class PhaseRecord(Section):
    """A phase of a plan, with one step per task of a section."""

    plan = String(
        "Plan of the phase: deploy, update or a custom plan.", required=True, non_empty=True, examples=["retune"]
    )
    phase = String("Name of the phase.", required=True, non_empty=True, examples=["workers"])
    job = String("Section of the options whose tasks the phase launches.", required=True, choices=tuple(JOBS))
    strategy = String("Order in which the steps start; empty: parallel.", choices=(*ORDERS, ""), examples=["canary"])
    tasks = String("Indexes of the tasks in the order of their steps, separated by commas; empty: all.")
    after = String(
        "Phases of the same plan that must complete first, separated by commas; empty: none. A plan without "
        "dependencies starts its phases in the order of its strategy; a custom plan starts them serially."
    )


class PlansSection(Section):
    deploy = String(
        "Order in which the phases and tasks of the first deployment start.",
        PlanStrategy.PARALLEL.value,
        choices=ORDERS,
    )
    update = String(
        "Order in which the phases and tasks of an update start. canary: the first two tasks of each phase wait for "
        "an operator.",
        PlanStrategy.PARALLEL.value,
        choices=ORDERS,
    )
    gang = Boolean("Launch tasks that can start at the same time all together or not at all.", default=True)
    phases = RecordList(PhaseRecord, "Phases of deploy, update and custom plans; empty: one phase per section.")
