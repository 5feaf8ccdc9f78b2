"""`plans`: in which order tasks are launched and updated, and plans of the user's own."""

from __future__ import annotations

from tf_scheduler.model.plan import PlanStrategy
from tf_scheduler.options.fields import Flag, Text
from tf_scheduler.options.lists import Records

from .base import Section, about
from .jobs import JOBS

#: `dependency` is not chosen: it follows from `after`.
ORDERS = tuple(item.value for item in PlanStrategy if item is not PlanStrategy.DEPENDENCY)


class PhaseRecord(Section):
    """A phase of a plan: a step for each task of one section."""

    plan = Text(
        required=True,
        filled=True,
        metadata=about("Plan that it belongs to: deploy, update, or a plan of your own.", examples=["retune"]),
    )
    phase = Text(required=True, filled=True, metadata=about("Name of the phase.", examples=["workers"]))
    job = Text(required=True, choices=tuple(JOBS), metadata=about("Section of the options whose tasks it launches."))
    strategy = Text(
        load_default="",
        choices=(*ORDERS, ""),
        metadata=about("In which order its steps begin; empty: parallel.", examples=["canary"]),
    )
    tasks = Text(
        load_default="",
        metadata=about("Indexes of the tasks, in the order of their steps, with commas between; empty: all."),
    )
    after = Text(
        load_default="",
        metadata=about(
            "Phases of the same plan that are complete before it begins, with commas between. Without any in a plan, "
            "phases begin in the order of the plan's own strategy; those of a plan of your own one after the other."
        ),
    )


class PlansSection(Section):
    deploy = Text(
        load_default=PlanStrategy.PARALLEL.value,
        choices=ORDERS,
        metadata=about("In which order the phases and tasks of the first deployment begin."),
    )
    update = Text(
        load_default=PlanStrategy.PARALLEL.value,
        choices=ORDERS,
        metadata=about("The same of an update; canary: the first two tasks of each phase wait for an operator."),
    )
    gang = Flag(
        load_default=True,
        metadata=about("Whether tasks that may begin at the same moment are launched all or none."),
    )
    phases = Records(
        PhaseRecord,
        load_default=(),
        metadata=about(
            "Phases of deploy and update, where the default of one per section will not do, and of plans of your own."
        ),
    )
