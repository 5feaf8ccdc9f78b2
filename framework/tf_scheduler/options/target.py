"""Which options hold when a scheduler starts: those that it was started with, unless an update may not change so.

Then the ones before hold, and the reasons are told (dcos-commons, DefaultConfigurationUpdater). All that were the
target are kept, the last `KEPT` of them, without secrets.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tf_scheduler.core.plans import target
from tf_scheduler.errors import OptionsError, Problem
from tf_scheduler.model.changes import Change, ConfigurationForgotten, ConfigurationStored
from tf_scheduler.model.configuration import Configuration, newest_first
from tf_scheduler.model.masking import MASK

from .diff import changes
from .loader import resolve
from .masking import masked, masked_value
from .spec import to_spec
from .tree import OPTIONS
from .update import refusals
from .variables import as_lists

Document = Mapping[str, Any]
#: Configurations that are kept.
KEPT = 10


@dataclass(frozen=True, slots=True)
class Target:
    """What holds: resolved options, with what is to be stored of them, or why it is not what was asked for."""

    options: Document
    changes: tuple[Change, ...] = ()
    rejected: tuple[str, ...] = ()


def choose(
    options: Document,
    history: Mapping[str, Configuration],
    defaults: Callable[[Document], Mapping[str, Mapping[str, Any]]],
    now: float,
    *,
    strict: bool = True,
) -> Target:
    """Of the resolved options that the scheduler was started with, and those that were the target before.

    `defaults`: what the place where it runs provides, where a document is silent. Raise OptionsError with the reasons
    when the change is refused and what was before cannot be had again: it depended on a secret that is another now.
    Not if `strict` is false: nothing is launched any more.
    """
    before = newest_first(history)
    candidate = _configuration(options, defaults(options), before[0].number + 1 if before else 1, now)
    if before and before[0].id != candidate.id:
        old = restored(before[0], options, defaults)
        candidate = replace(candidate, changed=None if old is None else _changed(old, options))
        refused = [] if old is None else refusals(old, options)
        if old is not None and refused:
            if strict and target(to_spec(old)) != before[0].target:
                raise OptionsError(refused)
            return Target(old, (), tuple(map(_told, refused)))
    if before and before[0].id == candidate.id:
        return Target(options)
    dropped = [item for item in before if item.id != candidate.id][KEPT - 1 :]
    forgotten = (ConfigurationForgotten(item.id) for item in dropped)
    return Target(options, (ConfigurationStored(candidate), *forgotten))


def restored(
    configuration: Configuration,
    present: Document,
    defaults: Callable[[Document], Mapping[str, Mapping[str, Any]]],
) -> Document | None:
    """Its options in full; what is masked is as at present. None: this version does not know them any more."""
    try:
        old = resolve(configuration.options, defaults(configuration.options))
    except OptionsError:
        return None
    for option in OPTIONS:
        section: Any = old
        for name in option.path[:-1]:
            section = section[name]
        was, now = section[option.path[-1]], option.value(present)
        if isinstance(was, Mapping) and isinstance(now, Mapping):
            hidden = masked_value(option, now)  # some only in part, as the password in an address
            section[option.path[-1]] = {
                key: now.get(key, text) if text in (MASK, hidden.get(key)) else text for key, text in was.items()
            }
        elif was == masked_value(option, now):
            section[option.path[-1]] = now
    return old


def without_defaults(options: Document, place: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What `resolve` makes these options of again, as JSON has it, and as short as can be."""
    document: dict[str, Any] = {}
    for option in OPTIONS:
        value = option.value(options)
        provided = place.get(option.path[0], {}).get(option.path[-1]) if len(option.path) == 2 else None
        if value in (option.default, provided):
            continue
        section = document
        for name in option.path[:-1]:
            section = section.setdefault(name, {})
        section[option.path[-1]] = value
    found: dict[str, Any] = json.loads(json.dumps(document))
    return found


def _configuration(options: Document, place: Mapping[str, Mapping[str, Any]], number: int, now: float) -> Configuration:
    shown = as_lists(without_defaults(masked(options), place))
    spec = to_spec(options)
    about = json.dumps([spec.name, target(spec), shown], sort_keys=True)
    return Configuration(str(uuid.uuid5(uuid.NAMESPACE_OID, about)), number, now, target(spec), shown)


def _changed(old: Document, new: Document) -> Sequence[Mapping[str, Any]]:
    """As it is stored."""
    told = [{"option": item.path, "old": item.old, "new": item.new} for item in changes(old, new)]
    found: list[dict[str, Any]] = json.loads(json.dumps(told, default=str))
    return found


def _told(problem: Problem) -> str:
    return f"{problem.path}: {problem.message}; the options before stay in force"
