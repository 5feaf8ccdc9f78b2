"""pymesos' call methods, each returning what became of the call, with the fields that pymesos leaves out."""

# The method names are pymesos' own.
# ruff: noqa: N802
from __future__ import annotations

from typing import Any, Mapping, Sequence, Union

from mesos_client.results import SendResult, Sent

Json = Mapping[str, Any]
#: pymesos takes one id or a list of them.
Ids = Union[Json, Sequence[Json]]


def _ids(ids: Ids) -> list[Json]:
    return [ids] if isinstance(ids, Mapping) else list(ids)


def _body(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _picked(source: Json, *names: str) -> dict[str, Any]:
    return {name: source[name] for name in names if source.get(name) is not None}


class SchedulerCalls:
    """Names are pymesos' own. Ids are v1 objects such as {"value": "..."}; `data` is base64 text."""

    def send(self, call: Json) -> SendResult:
        """Send a v1 scheduler call without its framework_id."""
        raise NotImplementedError

    def _call(self, kind: str, body: Json | None = None) -> SendResult:
        return self.send({"type": kind} if body is None else {"type": kind, kind.lower(): body})

    def acceptOffers(self, offer_ids: Ids, operations: Sequence[Json], filters: Json | None = None) -> SendResult:
        """ACCEPT, or DECLINE when there are no operations."""
        if not operations:
            return self.declineOffer(offer_ids, filters)
        return self._call("ACCEPT", _body(offer_ids=_ids(offer_ids), operations=list(operations), filters=filters))

    def launchTasks(self, offer_ids: Ids, tasks: Sequence[Json], filters: Json | None = None) -> SendResult:
        """ACCEPT with one LAUNCH operation, or DECLINE when there are no tasks."""
        launch = [{"type": "LAUNCH", "launch": {"task_infos": list(tasks)}}] if tasks else []
        return self.acceptOffers(offer_ids, launch, filters)

    def declineOffer(self, offer_ids: Ids, filters: Json | None = None) -> SendResult:
        return self._call("DECLINE", _body(offer_ids=_ids(offer_ids), filters=filters))

    def acceptInverseOffers(self, offer_ids: Ids, filters: Json | None = None) -> SendResult:
        return self._call("ACCEPT_INVERSE_OFFERS", _body(inverse_offer_ids=_ids(offer_ids), filters=filters))

    def declineInverseOffer(self, offer_ids: Ids, filters: Json | None = None) -> SendResult:
        return self._call("DECLINE_INVERSE_OFFERS", _body(inverse_offer_ids=_ids(offer_ids), filters=filters))

    def reviveOffers(self, roles: Sequence[str] = ()) -> SendResult:
        return self._call("REVIVE", {"roles": list(roles)} if roles else None)

    def suppressOffers(self, roles: Sequence[str] = ()) -> SendResult:
        return self._call("SUPPRESS", {"roles": list(roles)} if roles else None)

    def killTask(self, task_id: Json, agent_id: Json | None = None, kill_policy: Json | None = None) -> SendResult:
        """Without `agent_id` the master cannot answer for an agent that it has not heard of since its failover."""
        return self._call("KILL", _body(task_id=task_id, agent_id=agent_id, kill_policy=kill_policy))

    def shutdownExecutor(self, executor_id: Json, agent_id: Json) -> SendResult:
        """Not in pymesos: ends an idle executor, which holds its resources otherwise."""
        return self._call("SHUTDOWN", {"executor_id": executor_id, "agent_id": agent_id})

    def acknowledgeStatusUpdate(self, status: Json) -> SendResult:
        """Does nothing for a status without uuid: that one wants no acknowledgement."""
        if "uuid" not in status:
            return Sent()
        return self._call("ACKNOWLEDGE", _picked(status, "agent_id", "task_id", "uuid"))

    def acknowledgeOperationStatusUpdate(self, status: Json) -> SendResult:
        if "uuid" not in status or "operation_id" not in status:
            return Sent()
        wanted = _picked(status, "agent_id", "resource_provider_id", "operation_id")
        # A message of its own in the status, bytes in the call (mesos.proto, scheduler.proto).
        return self._call("ACKNOWLEDGE_OPERATION_STATUS", {**wanted, "uuid": status["uuid"]["value"]})

    def reconcileTasks(self, tasks: Sequence[Json]) -> SendResult:
        """Each task: {"task_id", "agent_id" when known}. An empty list asks for all."""
        return self._call("RECONCILE", {"tasks": [_picked(task, "task_id", "agent_id") for task in tasks]})

    def reconcileOperations(self, operations_: Sequence[Json]) -> SendResult:
        wanted = [_picked(item, "operation_id", "agent_id", "resource_provider_id") for item in operations_]
        return self._call("RECONCILE_OPERATIONS", {"operations": wanted})

    def sendFrameworkMessage(self, executor_id: Json, agent_id: Json, data: str) -> SendResult:
        return self._call("MESSAGE", {"agent_id": agent_id, "executor_id": executor_id, "data": data})

    def requestResources(self, requests: Sequence[Json]) -> SendResult:
        return self._call("REQUEST", {"requests": list(requests)})
