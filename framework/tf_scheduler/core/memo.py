"""Remember what was computed from immutable values, by their identity.

What a plan says follows from a few parts of the state, most of which an event leaves alone: the same object means the
same answer. Nobody can tell the difference, except by the clock; so this is no state.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import SchedulerState

Function = TypeVar("Function", bound=Callable[..., Any])
Answer = TypeVar("Answer")

#: So many answers per function: a few services in one process, each before and after an event.
_KEPT = 32


def remembered(function: Function) -> Function:
    """`function` of immutable positional arguments, computed once as long as the same objects come again."""
    answers: dict[tuple[int, ...], tuple[tuple[Any, ...], Any]] = {}

    @wraps(function)
    def ask(*arguments: Any) -> Any:
        key = tuple(map(id, arguments))
        known = answers.get(key)
        if known is not None:
            return known[1]
        answer = function(*arguments)
        if len(answers) >= _KEPT:
            answers.clear()
        # The arguments are kept with the answer: as long as they live, nothing else has their identity.
        answers[key] = (arguments, answer)
        return answer

    return ask  # type: ignore[return-value]


#: All of a state that plans are about; what is void with the connection, or about offers, is no part of it.
_OF_PLANS = ("tasks", "statuses", "result", "retired", "controls", "recoveries", "ripe", "tally", "unready", "paused")


def remembered_of_plans(function: Callable[[SchedulerState], Answer]) -> Callable[[SchedulerState], Answer]:
    """`function` of those parts of a state: it sees no others, so it cannot depend on them."""

    @remembered
    def of_parts(spec: ServiceSpec, *parts: Any) -> Answer:
        return function(SchedulerState(spec, **dict(zip(_OF_PLANS, parts, strict=True))))

    @wraps(function)
    def ask(state: SchedulerState) -> Answer:
        return of_parts(state.spec, *(getattr(state, name) for name in _OF_PLANS))

    return ask
