"""Choose new or stored options at start-up; resolve old options for rollbacks.

A rejected update keeps the previous options (dcos-commons, DefaultConfigurationUpdater). The last `MAX_CONFIGURATIONS`
target configurations are stored without secrets.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tf_scheduler.core.state.spec_index import index_of
from tf_scheduler.errors import OptionsError
from tf_scheduler.model.effects import Change, EntryForgotten
from tf_scheduler.model.redaction import MASK
from tf_scheduler.model.state import Configuration, newest_first

from .load import as_lists, resolve
from .schema.document import OPTIONS, mask_options, mask_value
from .schema.values import Document
from .spec import to_spec
from .update import changed_options, find_refusals

#: Number of stored configurations.
MAX_CONFIGURATIONS = 10
#: Section and name of the options whose default depends on other options; always stored.
_KEPT = (("service", "strategy"), ("parameter_server", "count"), ("chief", "count"))


@dataclass(frozen=True, slots=True)
class SelectedConfiguration:
    """Target options to use, changes to store, and why an update was rejected."""

    options: Document
    changes: tuple[Change, ...] = ()
    rejected: tuple[str, ...] = ()


def select_configuration(
    options: Document,
    history: Mapping[str, Configuration],
    defaults: Callable[[Document], Mapping[str, Mapping[str, Any]]],
    now: float,
    *,
    strict: bool = True,
) -> SelectedConfiguration:
    """Select the new options, or the previous target if the update is refused.

    `defaults` returns the defaults of the environment for a document. Raises OptionsError if the update is refused, and
    a changed secret prevents the return to the previous target, unless `strict` is false (during uninstall).
    """
    before = newest_first(history)
    candidate = _configuration(options, defaults(options), before[0].number + 1 if before else 1, now)
    if before and before[0].id != candidate.id:
        old = rollback_options(before[0], options, defaults)
        candidate = replace(candidate, changed=None if old is None else _stored_changes(old, options))
        refused = [] if old is None else [*find_refusals(old, options)]
        if old is not None and refused:
            if strict and index_of(to_spec(old)).target != before[0].target:
                raise OptionsError(refused)
            rejected = (f"{item.path}: {item.message}; the previous options remain active" for item in refused)
            return SelectedConfiguration(old, (), tuple(rejected))
    if before and before[0].id == candidate.id:
        return SelectedConfiguration(options)
    oldest = [item for item in before if item.id != candidate.id][MAX_CONFIGURATIONS - 1 :]
    forgotten = (EntryForgotten("configurations", item.id) for item in oldest)
    return SelectedConfiguration(options, (candidate, *forgotten))


def rollback_options(
    configuration: Configuration, present: Document, defaults: Callable[[Document], Mapping[str, Mapping[str, Any]]]
) -> Document | None:
    """Resolve stored options; take secrets from `present`. None: no longer valid."""
    try:
        old = resolve(configuration.options, defaults(configuration.options))
    except OptionsError:
        return None
    unmask(old, present)
    return old


def unmask(options: dict[str, Any], present: Document) -> None:
    """Take secrets that are masked in resolved options from `present`."""
    for option in OPTIONS:
        was, now = option.value(options), option.value(present)
        if isinstance(was, Mapping) and isinstance(now, Mapping):
            hidden = mask_value(option, now)  # only a part may be masked, such as the password in a URL
            unmasked = {
                key: now.get(key, text) if text in (MASK, hidden.get(key)) else text for key, text in was.items()
            }
            option.put(options, unmasked)
        elif was == mask_value(option, now):
            option.put(options, now)


def kept_options(target: Document) -> dict[str, dict[str, Any]]:
    """Return the options that a running service keeps if an update omits them.

    A newer package may have another default for a number of tasks; the service keeps the number that it was installed
    with. `target`: stored or resolved options.
    """
    return {section: {name: target[section][name]} for section, name in _KEPT}


def without_defaults(options: Document, provided: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the smallest JSON document that `resolve` expands to these options."""
    document: dict[str, Any] = {}
    for option in OPTIONS:
        value = option.value(options)
        default = provided.get(option.path[0], {}).get(option.path[-1]) if len(option.path) == 2 else None
        is_fixed = option.default is not None  # else it depends on other options, and another one may follow
        if value == option.default or (value == default and is_fixed):
            continue
        option.put(document, value)
    result: dict[str, Any] = json.loads(json.dumps(document))
    return result


def _configuration(
    options: Document, provided: Mapping[str, Mapping[str, Any]], number: int, now: float
) -> Configuration:
    stored = as_lists(without_defaults(mask_options(options), provided))
    spec = to_spec(options)
    content = json.dumps([spec.name, index_of(spec).target, stored], sort_keys=True)
    return Configuration(str(uuid.uuid5(uuid.NAMESPACE_OID, content)), number, now, index_of(spec).target, stored)


def _stored_changes(old: Document, new: Document) -> Sequence[Mapping[str, Any]]:
    items = [{"option": item.path, "old": item.old, "new": item.new} for item in changed_options(old, new)]
    stored: list[dict[str, Any]] = json.loads(json.dumps(items, default=str))
    return stored
