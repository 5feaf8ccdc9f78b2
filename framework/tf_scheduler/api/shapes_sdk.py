"""The bodies of the SDK's answers, with its keys (dcos-commons, PlanInfo and its siblings)."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from tf_scheduler.model.plan import Override, Status


class StepBody(TypedDict):
    id: str
    #: The SDK's display status.
    status: Status | Override
    name: str
    message: str


class PhaseBody(TypedDict):
    id: str
    name: str
    steps: list[StepBody]
    status: Status
    strategy: str


class PlanBody(TypedDict):
    phases: list[PhaseBody]
    errors: list[str]
    status: Status
    strategy: str


class MessageBody(TypedDict):
    message: str


class PodCommandBody(TypedDict):
    pod: str
    tasks: list[str]


class PodTaskBody(TypedDict):
    id: str
    name: str
    status: str


class PodBody(TypedDict):
    name: str
    tasks: list[PodTaskBody]


class PodTypeBody(TypedDict):
    name: str
    instances: list[PodBody]


class PodsBody(TypedDict):
    service: str
    pods: list[PodTypeBody]


class _LaunchInfo(TypedDict):
    #: TaskInfo, in the JSON of protobuf.
    info: dict[str, Any]


class LaunchBody(_LaunchInfo, total=False):
    #: TaskStatus; missing as long as Mesos has said nothing.
    status: dict[str, Any]


class EndpointBody(TypedDict):
    address: list[str]
    dns: list[str]


class _Health(TypedDict):
    value: int


class HealthBody(_Health, total=False):
    reasons: list[str]


OfferOutcomeBody = TypedDict(
    "OfferOutcomeBody",
    {
        "timestamp": int,
        "pod-instance-name": str,
        "outcome": Literal["pass", "fail"],
        "explanation": "list[str]",
        "offer": str,
    },
)


class OffersBody(TypedDict):
    acceptedCount: int
    rejectedCount: int
    failureReasons: dict[str, int]
    rejectedAgents: dict[str, int]
    offers: list[OfferOutcomeBody]
