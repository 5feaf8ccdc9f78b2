"""Types of the JSON bodies that the API returns and accepts."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

from tf_executor.contract.states import Override, Status
from tf_scheduler.model.state import Verdict


class _ErrorDetail(TypedDict):
    status: int
    code: str
    message: str


class ErrorDetail(_ErrorDetail, total=False):
    #: The valid names, if the message lists them.
    names: list[str]


class ErrorBody(TypedDict):
    error: ErrorDetail


#: Request bodies, with JSON Schema for the OpenAPI document; handlers validate the values themselves.
Update = Annotated[
    dict[str, Any], '{"properties": {"options": {"type": "object"}, "environment": {"type": ["object", "null"]}}}'
]
ExecCommand = Annotated[
    dict[str, Any],
    '{"required": ["command"], "properties": {"command": {"type": "array", "minItems": 1, "items": {"type": "string", '
    r'"minLength": 1, "pattern": "^[^\\u0000]*$"}}, "timeout": {"type": "number", "minimum": 1, "maximum": 3600}}, '
    '"additionalProperties": false}',
]
Scale = Annotated[
    dict[str, Any],
    '{"required": ["worker"], "properties": {"worker": {"type": "integer", "minimum": 1}}, '
    '"additionalProperties": false}',
]
TaskNames = Annotated[list[Annotated[str, '{"minLength": 1}']], '{"maxItems": 1}']
Variables = Annotated[
    dict[str, Annotated[str, r'{"pattern": "^[^\\u0000]*$"}']],
    '{"propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}}',
]


class ResourcesBody(TypedDict):
    cpus: float
    mem: float
    disk: float
    gpus: float


class _Member(TypedDict):
    name: str
    job: str
    index: int


class EarlierLaunchBody(TypedDict):
    id: str
    hostname: str
    launched_at: float


class _TaskBody(_Member):
    state: str | None
    status: str
    healthy: bool | None
    reason: str
    message: str
    exit_code: int | None
    signal: int | None
    id: str | None
    agent_id: str | None
    hostname: str | None
    zone: str
    region: str
    address: str | None
    generation: int | None
    launched_at: float | None
    plan: str | None
    resources: ResourcesBody
    pending: list[str]


class TaskBody(_TaskBody, total=False):
    #: What the processes of the task use; null until the executor reports it, and after the end but for the peak.
    memory_used_mb: float | None
    memory_peak_mb: float | None
    cpus_used: float | None
    #: Ports without that of `address`.
    more_ports: list[int]
    #: Number of restarts for its own cause, and the last three earlier launches, oldest first.
    restarts: int
    earlier: list[EarlierLaunchBody]


class _TasksBody(TypedDict):
    tasks: list[TaskBody]


class TasksBody(_TasksBody, total=False):
    #: Earlier launches that were given up while their agents did not answer, such as "ps-0 may still run on agent-1".
    may_still_run: list[str]


class LogEventBody(TypedDict):
    """Data of event `log`: new bytes of the file."""

    offset: int
    data: str
    size: int
    next: int


class LogBody(LogEventBody):
    task: str
    id: str
    file: str


class FileBody(TypedDict):
    """Entry of a folder; `mode` as `ls -l` prints it."""

    name: str
    mode: str
    size: int


class FilesBody(TypedDict):
    task: str
    id: str
    folder: str
    files: list[FileBody]


class StartedBody(TypedDict):
    """A command was sent to a launch of a task; `id` names its result."""

    task: str
    launch: str
    id: str


class ExecutedBody(TypedDict):
    """State of a command: `running` or `ended`, then with its end and output."""

    task: str
    launch: str
    id: str
    state: str
    exit_code: int | None
    signal: int | None
    timed_out: bool
    #: Whether only the first output is kept.
    cut: bool
    #: Why it did not run; empty if it did.
    error: str
    stdout: str
    stderr: str


class LaunchedBody(TypedDict):
    """Data of event `launch`: the following data is of this launch."""

    id: str


class EndBody(TypedDict):
    """Data of event `end`: the stream is complete."""

    state: str | None


class ClusterTaskBody(_Member):
    address: str
    hostname: str
    generation: int
    tf_config: dict[str, Any]


class MembersBody(TypedDict):
    """Workers that the running chief is to use."""

    workers: list[str]
    version: int
    #: Whether it uses them.
    confirmed: bool
    #: Why it cannot change its workers; empty if it can.
    error: str


class _Cluster(TypedDict):
    generation: int
    strategy: str
    cluster: dict[str, list[str]]
    tasks: list[ClusterTaskBody]


class ClusterBody(_Cluster, total=False):
    #: Null unless workers may join and leave.
    members: MembersBody | None


class _Point(TypedDict):
    time: float
    step: int | None
    loss: float | None
    steps_per_second: float | None


class PointBody(_Point, total=False):
    metrics: dict[str, float | None]
    #: Number of workers that trained then; null unless the task leads the training.
    workers: int | None


class _Progress(_Member):
    status: str
    time: float | None
    step: int | None
    total: int | None
    loss: float | None
    examples: int | None
    steps_per_second: float | None
    examples_per_second: float | None
    seconds_left: float | None
    points: list[PointBody]


class ProgressBody(_Progress, total=False):
    epoch: int | None
    epochs: int | None
    saved_step: int | None
    of: str | None
    source: str | None
    metrics: dict[str, float | None]


class JobProgressBody(TypedDict):
    tasks: int
    reporting: int
    step: int | None
    total: int | None
    steps_per_second: float | None
    examples_per_second: float | None


class _Training(TypedDict):
    leader: str | None
    tasks: list[ProgressBody]
    jobs: dict[str, JobProgressBody]


class TrainingBody(_Training, total=False):
    examples_per_second: float | None
    #: Null unless workers may join and leave.
    members: MembersBody | None


class BoardBody(TypedDict):
    running: bool
    reason: str
    task: str | None
    address: str | None
    path: str | None


class ResultBody(TypedDict):
    over: bool
    verdict: Verdict | None
    reason: str | None
    decided_at: float | None


class PendingTaskBody(TypedDict):
    name: str
    plan: str
    phase: str
    step: str
    status: Status | Override
    reasons: list[str]


class PendingBody(TypedDict):
    evaluated_at: float | None
    offers: int
    agents: int
    tasks: list[PendingTaskBody]


class EventBody(TypedDict):
    number: int
    time: float
    kind: str
    task: str | None
    message: str
    warning: bool


class EventsBody(TypedDict):
    events: list[EventBody]
    first: int
    last: int
    next: int
    journal: str


# Bodies of the SDK (dcos-commons, PlanInfo and related classes).


class _StepBody(TypedDict):
    id: str
    #: Display status.
    status: Status | Override
    name: str
    message: str


class StepBody(_StepBody, total=False):
    #: Last step of uninstall: what remains in Mesos; absent if nothing does.
    left_behind: list[str]
    #: The same step: launches whose agents the removal of the framework waits for.
    waits_for: list[str]


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
    #: TaskInfo in protobuf's JSON format.
    info: dict[str, Any]


class LaunchBody(_LaunchInfo, total=False):
    #: TaskStatus; missing before the first status update.
    status: dict[str, Any]


class EndpointBody(TypedDict):
    address: list[str]
    dns: list[str]


class _Health(TypedDict):
    value: int


class HealthBody(_Health, total=False):
    reasons: list[str]
    verdict: Literal["succeeded", "failed", "stopped"] | None


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


class RefusedCallsBody(TypedDict):
    cause: str
    since: float
    count: int


class FailingAgentBody(TypedDict):
    agent_id: str
    hostname: str
    failures: list[float]
    avoided_until: float


class MesosBody(TypedDict):
    """Problems between the scheduler and Mesos; times are Unix times."""

    connected: bool
    #: Null while Mesos accepts the scheduler's calls.
    refused_calls: RefusedCallsBody | None
    #: Seconds by which the master's clock is ahead; 0 if tolerable.
    clock_drift: float
    may_still_run: list[str]
    failing_agents: list[FailingAgentBody]


class OffersBody(TypedDict):
    acceptedCount: int
    rejectedCount: int
    failureReasons: dict[str, int]
    rejectedAgents: dict[str, int]
    offers: list[OfferOutcomeBody]
