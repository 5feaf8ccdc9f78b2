"""Calls that consist of ids, as Mesos v1 scheduler calls (JSON)."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tf_executor.payload import RENEW_SECRETS
from tf_scheduler.model.effects import (
    AcceptInverseOffers,
    Acknowledge,
    AcknowledgeOperation,
    Decline,
    Kill,
    Reconcile,
    ReconcileOperations,
    Revive,
    ShutdownExecutor,
    Suppress,
    TellExecutor,
)
from tf_scheduler.model.ids import FrameworkId

Json = dict[str, Any]


def values(ids: Iterable[str]) -> list[Json]:
    """As mesos.proto has ids: each a message of its own."""
    return [{"value": value} for value in ids]


def _decline(item: Decline, _: FrameworkId) -> Json:
    filters = {"refuse_seconds": item.refuse_seconds}
    return {"type": "DECLINE", "decline": {"offer_ids": values(item.offer_ids), "filters": filters}}


def _accept_inverse(item: AcceptInverseOffers, _: FrameworkId) -> Json:
    content = {"inverse_offer_ids": values(item.offer_ids), "filters": {"refuse_seconds": item.refuse_seconds}}
    return {"type": "ACCEPT_INVERSE_OFFERS", "accept_inverse_offers": content}


def _kill(item: Kill, _: FrameworkId) -> Json:
    return {"type": "KILL", "kill": {"task_id": {"value": item.task_id}, "agent_id": {"value": item.agent_id}}}


def _shutdown(item: ShutdownExecutor, _: FrameworkId) -> Json:
    ids = {"executor_id": {"value": item.executor_id}, "agent_id": {"value": item.agent_id}}
    return {"type": "SHUTDOWN", "shutdown": ids}


def _tell(item: TellExecutor, _: FrameworkId) -> Json:
    ids = {"executor_id": {"value": item.executor_id}, "agent_id": {"value": item.agent_id}}
    return {"type": "MESSAGE", "message": {**ids, "data": base64.b64encode(RENEW_SECRETS).decode()}}


def _acknowledge(item: Acknowledge, _: FrameworkId) -> Json:
    return {
        "type": "ACKNOWLEDGE",
        "acknowledge": {
            "agent_id": {"value": item.agent_id},
            "task_id": {"value": item.task_id},
            "uuid": item.uuid,
        },
    }


def _acknowledge_operation(item: AcknowledgeOperation, _: FrameworkId) -> Json:
    ids = {"agent_id": {"value": item.agent_id}, "operation_id": {"value": item.id}}
    return {"type": "ACKNOWLEDGE_OPERATION_STATUS", "acknowledge_operation_status": {**ids, "uuid": item.uuid}}


def _reconcile(item: Reconcile, _: FrameworkId) -> Json:
    tasks = [{"task_id": {"value": task}, "agent_id": {"value": agent}} for task, agent in item.tasks.items()]
    return {"type": "RECONCILE", "reconcile": {"tasks": tasks}}


def _reconcile_operations(item: ReconcileOperations, _: FrameworkId) -> Json:
    wanted = [{"operation_id": {"value": key}, "agent_id": {"value": agent}} for key, agent in item.operations.items()]
    return {"type": "RECONCILE_OPERATIONS", "reconcile_operations": {"operations": wanted}}


#: One row per call.
ENCODERS: Mapping[type, Callable[[Any, FrameworkId], Json]] = {
    Decline: _decline,
    AcceptInverseOffers: _accept_inverse,
    Suppress: lambda _item, _id: {"type": "SUPPRESS", "suppress": {}},
    Revive: lambda _item, _id: {"type": "REVIVE", "revive": {}},
    Kill: _kill,
    ShutdownExecutor: _shutdown,
    TellExecutor: _tell,
    Acknowledge: _acknowledge,
    AcknowledgeOperation: _acknowledge_operation,
    Reconcile: _reconcile,
    ReconcileOperations: _reconcile_operations,
}
