"""Schema of `plans`: order of launches and updates, and custom plans."""

from __future__ import annotations

from tf_scheduler.model.plan import PlanStrategy

from .fields import Boolean, RecordList, Section, String, option_metadata
from .jobs import JOBS

#: `dependency` follows from `after` and is not an option.
ORDERS = tuple(item.value for item in PlanStrategy if item is not PlanStrategy.DEPENDENCY)


class PhaseRecord(Section):
    """A phase of a plan, with one step per task of a section."""

    plan = String(
        required=True,
        non_empty=True,
        metadata=option_metadata("Plan of the phase: deploy, update or a custom plan.", examples=["retune"]),
    )
    phase = String(required=True, non_empty=True, metadata=option_metadata("Name of the phase.", examples=["workers"]))
    job = String(
        required=True,
        choices=tuple(JOBS),
        metadata=option_metadata("Section of the options whose tasks the phase launches."),
    )
    strategy = String(
        load_default="",
        choices=(*ORDERS, ""),
        metadata=option_metadata("Order in which the steps start; empty: parallel.", examples=["canary"]),
    )
    tasks = String(
        load_default="",
        metadata=option_metadata("Indexes of the tasks in the order of their steps, separated by commas; empty: all."),
    )
    after = String(
        load_default="",
        metadata=option_metadata(
            "Phases of the same plan that must complete first, separated by commas. A plan without "
            "dependencies starts its phases in the order of its strategy; a custom plan starts them "
            "serially."
        ),
    )


class PlansSection(Section):
    deploy = String(
        load_default=PlanStrategy.PARALLEL.value,
        choices=ORDERS,
        metadata=option_metadata("Order in which the phases and tasks of the first deployment start."),
    )
    update = String(
        load_default=PlanStrategy.PARALLEL.value,
        choices=ORDERS,
        metadata=option_metadata(
            "Order in which the phases and tasks of an update start. canary: the first two tasks of each "
            "phase wait for an operator."
        ),
    )
    gang = Boolean(
        load_default=True,
        metadata=option_metadata("Launch tasks that can start at the same time all together or not at all."),
    )
    phases = RecordList(
        PhaseRecord,
        load_default=(),
        metadata=option_metadata("Phases of deploy, update and custom plans; empty: one phase per section."),
    )
