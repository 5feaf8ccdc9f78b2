"""Resolved options of `plans` -> the plans of the spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tf_scheduler.model.plan import PhaseSpec, PlanSpec, PlanStrategy

from .words import words

#: Plans that there always are; their order and that of their phases may be another.
_ALWAYS = ("deploy", "update")


def to_plans(options: Mapping[str, Any]) -> Mapping[str, PlanSpec]:
    """Every plan that the options describe, deploy and update first."""
    phases: dict[str, list[Mapping[str, str]]] = {name: [] for name in _ALWAYS}
    for phase in options["phases"]:
        phases.setdefault(phase["plan"], []).append(phase)
    if not phases["update"]:
        phases["update"] = phases["deploy"]
    return {name: _plan(name, options, found) for name, found in phases.items()}


def _plan(name: str, options: Mapping[str, Any], phases: Sequence[Mapping[str, str]]) -> PlanSpec:
    after = {phase["phase"]: words(phase["after"]) for phase in phases}
    chosen = PlanStrategy(options[name]) if name in _ALWAYS else PlanStrategy.SERIAL
    strategy = PlanStrategy.DEPENDENCY if any(after.values()) else chosen
    return PlanSpec(name, strategy, tuple(map(_phase, phases)), after, options["gang"])


def _phase(phase: Mapping[str, str]) -> PhaseSpec:
    indexes = tuple(int(index) for index in words(phase["tasks"]))
    strategy = PlanStrategy(phase["strategy"] or PlanStrategy.PARALLEL)
    return PhaseSpec(phase["phase"], phase["job"], strategy, indexes)
