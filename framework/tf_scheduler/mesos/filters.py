"""What Mesos need not offer us: crumbs, and agents that no task may use.

Both only spare the master and others useless offers: placing checks everything again. Neither is used with
reservations: what is to be given back must be offered, wherever it is and however small.
"""

from __future__ import annotations

from typing import Any

from tf_scheduler.model.placement import HOSTNAME, REGION, ZONE, Constraint, GangMode, Operator
from tf_scheduler.model.resources import UNIT, Needs
from tf_scheduler.model.spec import JobSpec, ServiceSpec

Json = dict[str, Any]

#: What is less than this is left to others, in thousandths.
CRUMBS = {"cpus": UNIT, "mem": 1024 * UNIT}

_PSEUDO = {HOSTNAME: "HOSTNAME", REGION: "REGION", ZONE: "ZONE"}


def offer_filters(spec: ServiceSpec) -> Json:
    """FrameworkInfo.offer_filters: enough for one task of any job, with its executor, or CRUMBS if that is less.

    An agent that is too small for a task is to be offered, or nobody could be told how small it is.
    A master before 1.9 ignores it (Mesos documentation, app-framework-development-guide).
    """
    if spec.gang.mode is GangMode.RESERVE:
        return {}
    least = [job.needs + spec.executor.needs for job in spec.jobs if job.count]
    quantities = [{"quantities": _quantities(needs)} for needs in least]
    return {"offer_filters": {spec.role: {"min_allocatable_resources": {"quantities": quantities}}}}


def _quantities(needs: Needs) -> Json:
    return {name: {"value": min(amount, CRUMBS[name]) / UNIT} for name, amount in needs.scalars() if name in CRUMBS}


def offer_constraints(spec: ServiceSpec) -> Json:
    """OfferConstraints of SUBSCRIBE: an agent is offered when it may run a task of any job (mesos.proto, since 1.11).

    Empty when some job may run anywhere. Regular expressions are not sent: the master's own limits on them would end
    the subscription.
    """
    groups = [_predicates(spec, job) for job in spec.jobs if job.count]
    if spec.gang.mode is GangMode.RESERVE or not groups or not all(groups):
        return {}
    return {"role_constraints": {spec.role: {"groups": [{"attribute_constraints": group} for group in groups]}}}


def _predicates(spec: ServiceSpec, job: JobSpec) -> list[Json]:
    found = [item for rule in job.constraints if (item := _predicate(rule))]
    if spec.placement.region and all(rule.field != REGION for rule in job.constraints):
        found.append(_equals(REGION, spec.placement.region))
    return found


def _predicate(rule: Constraint) -> Json | None:
    """What must hold of an agent, whatever else runs; None when that says nothing."""
    if rule.operator in (Operator.IS, Operator.CLUSTER):
        return _equals(rule.field, rule.parameter)
    if rule.operator is Operator.IS_NOT:
        return {"selector": _selector(rule.field), "predicate": {"text_not_equals": {"value": rule.parameter}}}
    if rule.operator is Operator.UNLIKE or rule.field == HOSTNAME:
        return None
    return {"selector": _selector(rule.field), "predicate": {"exists": {}}}


def _equals(name: str, value: str) -> Json:
    return {"selector": _selector(name), "predicate": {"text_equals": {"value": value}}}


def _selector(name: str) -> Json:
    return {"pseudoattribute_type": _PSEUDO[name]} if name in _PSEUDO else {"attribute_name": name}
