"""Which options hold: those that the scheduler was started with, or those before. What an update would make of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tf_scheduler.errors import OptionsError, Problem
from tf_scheduler.model.changes import ConfigurationStored
from tf_scheduler.model.configuration import Configuration, newest_first
from tf_scheduler.model.effects import Outcome
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.options.diff import Difference, difference, sentence
from tf_scheduler.options.environment import to_document
from tf_scheduler.options.loader import resolve
from tf_scheduler.options.target import Target, choose, restored
from tf_scheduler.runner import restore
from tf_scheduler.store.interface import StateStore
from tf_scheduler.store.records import writes

log = logging.getLogger(__name__)

Document = Mapping[str, Any]
#: Document, variables -> what the place provides where the document is silent.
Provided = Callable[[Document, Mapping[str, str]], Mapping[str, Mapping[str, Any]]]


@dataclass(slots=True)
class Settling:
    """`options`: resolved, those that the scheduler was started with; from `settle` on those that hold."""

    options: Document
    environment: Mapping[str, str]
    provided: Provided
    spec_of: Callable[[Document], ServiceSpec]
    #: Nothing is launched any more.
    uninstalling: bool = False
    #: What `settle` has decided, for whoever reads the events.
    told: list[Outcome] = field(default_factory=list)
    clock: Callable[[], float] = field(default=time.time)

    def settle(self, store: StateStore) -> SchedulerState:
        """The stored state, with the options that hold; new ones are stored first.

        Raise OptionsError when neither those nor the ones before can be had.
        """
        before = restore(self.spec_of(self.options), store)
        chosen = self._choose(before.configurations)
        self.options = chosen.options
        self.told = [*self._news(chosen, before)]
        for outcome in self.told:
            log.log(logging.ERROR if outcome.warning else logging.INFO, "%s", outcome.message)
        state = restore(self.spec_of(chosen.options), store)
        if chosen.changes:
            store.apply([write for change in chosen.changes for write in writes(change, state)])
            state = restore(self.spec_of(chosen.options), store)
        return state if not chosen.rejected else _rejecting(state, chosen.rejected)

    def _choose(self, history: Mapping[str, Configuration]) -> Target:
        return choose(self.options, history, self._place, self.clock(), strict=not self.uninstalling)

    def _place(self, document: Document) -> Mapping[str, Mapping[str, Any]]:
        return self.provided(document, self.environment)

    def _news(self, chosen: Target, before: SchedulerState) -> Iterator[Outcome]:
        history = before.configurations
        for reason in chosen.rejected:
            yield Outcome(f"the new options are refused: {reason}", warning=True)
        for change in chosen.changes:
            if isinstance(change, ConfigurationStored) and history:
                old = restored(newest_first(history)[0], chosen.options, self._place)
                said = "of another version" if old is None else sentence(difference(old, chosen.options, before))
                yield Outcome(f"new target configuration {change.configuration.id}: {said}")

    def foretell(self, asked: Document, state: SchedulerState) -> dict[str, Any]:
        """What an update would do now; `asked` has the new `options`, or the `environment` of an app that has them.

        Raise OptionsError with everything that is wrong with them.
        """
        environment = {**self.environment, **_texts(asked.get("environment"), "environment")}
        document = asked.get("options") if "options" in asked else to_document(environment)
        if not isinstance(document, Mapping):
            raise OptionsError([Problem("options", "must be a JSON object")])
        new = resolve(document, self.provided(document, environment))
        return _shown(difference(self.options, new, state))


def _rejecting(state: SchedulerState, reasons: tuple[str, ...]) -> SchedulerState:
    return replace(state, rejected=reasons)


def _texts(given: Any, name: str) -> dict[str, str]:
    """Variables; those whose value is a reference to a secret are none of ours."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise OptionsError([Problem(name, "must be a JSON object")])
    return {key: text for key, text in given.items() if isinstance(text, str)}


def _shown(found: Difference) -> dict[str, Any]:
    return {
        "changed": [{"option": item.path, "old": item.old, "new": item.new} for item in found.changed],
        "refused": [{"option": item.path, "reason": item.message} for item in found.refused],
        "restarted": [asdict(item) for item in found.restarted],
        "added": list(found.added),
        "removed": list(found.removed),
    }
