"""Types of the JSON bodies that the API returns.

The OpenAPI document is made from these types, and the commands check answers against them. A body with optional members
has two classes: the base `_NameBody` has the required members, and `NameBody` with total=False adds the optional ones.
Python 3.8 has no other mark for optional members.
"""

import sys
from typing import TYPE_CHECKING, Any, Dict, FrozenSet, List, Literal, Optional, TypedDict, Union

from .reports import PROGRESS_FIELDS
from .states import Override, Status

JobVerdict = Literal["succeeded", "failed", "stopped"]


def required_names(body: Any) -> FrozenSet[str]:
    """Return the names of the members that a body must have."""
    base = body if body.__total__ else vars(sys.modules[body.__module__]).get(f"_{body.__name__}")
    return frozenset(base.__annotations__ if base else ())


class _ErrorDetail(TypedDict):
    status: int
    code: str
    message: str


class ErrorDetail(_ErrorDetail, total=False):
    #: The valid names, if the message lists them.
    names: List[str]


class ErrorBody(TypedDict):
    error: ErrorDetail


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
    #: Mesos task state; null before the first status.
    state: Optional[str]
    #: `state` without `TASK_`; `PENDING` before the launch, `STAGING` before the first status, `PAUSING` or `PAUSED`.
    status: str
    healthy: Optional[bool]
    reason: str
    message: str
    exit_code: Optional[int]
    signal: Optional[int]
    #: Id of the last launch, null before it, as are the following values of the launch.
    id: Optional[str]
    agent_id: Optional[str]
    hostname: Optional[str]
    zone: str
    region: str
    address: Optional[str]
    generation: Optional[int]
    launched_at: Optional[float]
    plan: Optional[str]
    #: What it asks for, with its executor.
    resources: ResourcesBody
    #: Reasons why it has not been placed (see `/v1/pending`); empty for a placed task.
    pending: List[str]


class TaskTextsBody(TypedDict):
    """Resources of a task, as texts for people."""

    #: What it asks for, such as `0.6 cpus, 1 GB`.
    resources: str
    #: What its processes use of it; what it asks for before the first report.
    cpus: str
    memory: str


class TaskBody(_TaskBody, total=False):
    #: The resources that it asks for and uses (of the memory, without the executor), as the page shows them.
    texts: TaskTextsBody
    #: Whether it uses nearly all of its memory.
    near_limit: bool
    #: Resident memory of its processes, measured 3 s after the start and then every 10 s; shared memory counts once.
    memory_used_mb: Optional[float]
    #: Largest resident memory so far, which remains known after the end.
    memory_peak_mb: Optional[float]
    #: CPU seconds per second since the last report.
    cpus_used: Optional[float]
    #: Ports of the last launch without that of `address`.
    more_ports: List[int]
    #: Number of restarts for its own cause.
    restarts: int
    #: The last three earlier launches, oldest first.
    earlier: List[EarlierLaunchBody]


class _TasksBody(TypedDict):
    tasks: List[TaskBody]


class TasksBody(_TasksBody, total=False):
    #: Earlier launches that were given up while their agents did not answer, such as "ps-0 may still run on agent-1".
    may_still_run: List[str]
    #: Why the scheduler cannot act, or the job does not run as it should.
    reasons: List[str]


class LogEventBody(TypedDict):
    """Data of event `log`: new bytes of the file."""

    offset: int
    data: str
    size: int
    #: `size` as people read it.
    size_text: str
    next: int


class LogBody(LogEventBody):
    task: str
    id: str
    file: str


class FileBody(TypedDict):
    """Entry of a folder; `mode` has the form that `ls -l` prints."""

    name: str
    mode: str
    size: int


class FilesBody(TypedDict):
    task: str
    id: str
    folder: str
    files: List[FileBody]


class StartedBody(TypedDict):
    """A command that was sent to a launch of a task; `id` names the result."""

    task: str
    launch: str
    id: str


class ExecutedBody(TypedDict):
    """State of a command: `running`, or `ended` with exit status and output."""

    task: str
    launch: str
    id: str
    state: str
    exit_code: Optional[int]
    signal: Optional[int]
    timed_out: bool
    #: Whether only the first output is kept.
    cut: bool
    #: Why it did not run; empty if it did.
    error: str
    stdout: str
    stderr: str


class LaunchedBody(TypedDict):
    """Data of event `launch`: the next events are about the launch with this id."""

    id: str


class EndBody(TypedDict):
    """Data of event `end`: the stream is complete."""

    state: Optional[str]


class ClusterTaskBody(_Member):
    address: str
    hostname: str
    generation: int
    tf_config: Dict[str, Any]


class MembersBody(TypedDict):
    """Workers that the scheduler wants the running chief to use."""

    workers: List[str]
    version: int
    #: Whether it uses them.
    confirmed: bool
    #: Why it cannot change its workers; empty if it can.
    error: str


class _ClusterBody(TypedDict):
    generation: int
    strategy: str
    cluster: Dict[str, List[str]]
    tasks: List[ClusterTaskBody]


class ClusterBody(_ClusterBody, total=False):
    #: Null unless workers may join and leave.
    members: Optional[MembersBody]


if TYPE_CHECKING:

    class _ReportBody(TypedDict, total=False):
        """Fields of `Progress` in a body; `Progress.from_json` reads them."""

else:
    _ReportBody = TypedDict("_ReportBody", {each.name: each.kind for each in PROGRESS_FIELDS}, total=False)


class _PointBody(TypedDict):
    time: float
    loss: Optional[float]


class PointBody(_ReportBody, _PointBody, total=False):
    metrics: Dict[str, Optional[float]]


class _ProgressBody(_Member):
    status: str
    time: Optional[float]
    step: Optional[int]
    points: List[PointBody]


class ProgressBody(_ReportBody, _ProgressBody, total=False):
    metrics: Dict[str, Optional[float]]


class JobProgressBody(TypedDict):
    tasks: int
    #: Number of tasks that report progress.
    reporting: int
    #: Minimum of the tasks.
    step: Optional[int]
    #: Maximum of the tasks.
    total: Optional[int]
    #: Mean of the tasks.
    steps_per_second: Optional[float]
    #: Sum of the tasks; examples of the whole job count once.
    examples_per_second: Optional[float]
    #: The progress in words; empty if no task reports.
    text: str


class _TrainingBody(TypedDict):
    #: Task that decides the success of the job.
    leader: Optional[str]
    tasks: List[ProgressBody]
    jobs: Dict[str, JobProgressBody]


class TrainingBody(_TrainingBody, total=False):
    examples_per_second: Optional[float]
    #: Heading -> text of the values of the leading task, and of the examples of the job.
    summary: Dict[str, str]
    #: Null unless workers may join and leave.
    members: Optional[MembersBody]


class BoardBody(TypedDict):
    running: bool
    reason: str
    task: Optional[str]
    address: Optional[str]
    path: Optional[str]


class ResultBody(TypedDict):
    #: Whether the job has ended and the framework is removed from Mesos.
    over: bool
    #: `succeeded`, `failed` or `stopped`; null until the result is decided, as are the following values.
    verdict: Optional[JobVerdict]
    #: The first failure, then the tasks that failed as a consequence.
    reason: Optional[str]
    decided_at: Optional[float]


class PendingTaskBody(TypedDict):
    name: str
    plan: str
    phase: str
    step: str
    status: Union[Status, Override]
    reasons: List[str]


class _PendingBody(TypedDict):
    #: Time of the last evaluation of offers; null before the first one.
    evaluated_at: Optional[float]
    #: Number of offers that were evaluated then.
    offers: int
    #: Number of their agents.
    agents: int
    tasks: List[PendingTaskBody]


class PendingBody(_PendingBody, total=False):
    #: As in `TasksBody`.
    reasons: List[str]


class EventBody(TypedDict):
    number: int
    time: float
    #: Type of the input that caused the event, for example an offer, a status or a command.
    kind: str
    #: Task of the event, if any.
    task: Optional[str]
    message: str
    warning: bool


class EventsBody(TypedDict):
    events: List[EventBody]
    #: Number of the oldest stored event.
    first: int
    #: Number of the newest stored event.
    last: int
    #: Value of `after` for the next request, at most `last`.
    next: int
    #: Id of the journal; a reinstalled service has a new journal, whose event numbers start again at 1.
    journal: str


# Bodies of the SDK (dcos-commons, PlanInfo and related classes).


class _StepBody(TypedDict):
    id: str
    #: Display status.
    status: Union[Status, Override]
    name: str
    message: str


class StepBody(_StepBody, total=False):
    #: Last step of uninstall: what remains in Mesos; absent if nothing does.
    left_behind: List[str]
    #: The same step: launches whose agents the removal of the framework waits for.
    waits_for: List[str]


class PhaseBody(TypedDict):
    id: str
    name: str
    steps: List[StepBody]
    status: Status
    strategy: str


class PlanBody(TypedDict):
    phases: List[PhaseBody]
    errors: List[str]
    status: Status
    strategy: str


class MessageBody(TypedDict):
    message: str


class PodCommandBody(TypedDict):
    pod: str
    tasks: List[str]


class PodTaskBody(TypedDict):
    id: str
    name: str
    status: str


class PodBody(TypedDict):
    name: str
    tasks: List[PodTaskBody]


class PodTypeBody(TypedDict):
    name: str
    instances: List[PodBody]


class PodsBody(TypedDict):
    service: str
    pods: List[PodTypeBody]


class _LaunchBody(TypedDict):
    #: TaskInfo in protobuf's JSON format.
    info: Dict[str, Any]


class LaunchBody(_LaunchBody, total=False):
    #: TaskStatus; missing before the first status update.
    status: Dict[str, Any]


class EndpointBody(TypedDict):
    address: List[str]
    dns: List[str]


class _HealthBody(TypedDict):
    value: int


class HealthBody(_HealthBody, total=False):
    reasons: List[str]
    verdict: Optional[JobVerdict]


OfferOutcomeBody = TypedDict(
    "OfferOutcomeBody",
    {
        "timestamp": int,
        "pod-instance-name": str,
        "outcome": Literal["pass", "fail"],
        "explanation": List[str],
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
    failures: List[float]
    avoided_until: float


class MesosBody(TypedDict):
    """Problems between the scheduler and Mesos; times are Unix times."""

    connected: bool
    #: Null while Mesos accepts the scheduler's calls.
    refused_calls: Optional[RefusedCallsBody]
    #: Seconds by which the master's clock is ahead; 0 if tolerable.
    clock_drift: float
    may_still_run: List[str]
    failing_agents: List[FailingAgentBody]


class OffersBody(TypedDict):
    acceptedCount: int
    rejectedCount: int
    failureReasons: Dict[str, int]
    rejectedAgents: Dict[str, int]
    offers: List[OfferOutcomeBody]


class ChangeBody(TypedDict):
    """An option with its old and new value; secrets are masked."""

    option: str
    old: Any
    new: Any


class RefusalBody(TypedDict):
    option: str
    reason: str


class RestartBody(TypedDict):
    task: str
    reason: str
    step: Optional[int]
    saved_step: Optional[int]


class PreviewBody(TypedDict):
    """Effects that an update of the options would have."""

    changed: List[ChangeBody]
    refused: List[RefusalBody]
    restarted: List[RestartBody]
    added: List[str]
    removed: List[str]
    #: Number of workers that was requested in place of `worker.count`.
    requested: Optional[int]


# What the commands read of bodies that have more members.


class ConfigurationBody(TypedDict, total=False):
    #: Options of an update that the scheduler refused.
    rejected: Optional[List[str]]
    options: Dict[str, Any]
    at: float
    changed: List[ChangeBody]


class _OverviewTaskBody(TypedDict):
    name: str
    hostname: str
    state: str
    message: str


class OverviewTaskBody(_ReportBody, _OverviewTaskBody, total=False):
    activity: str
    live: bool
    progress: str


class _OverviewBody(TypedDict):
    service: str
    verdict: str
    reason: str
    refused: str
    leader: Optional[str]
    tasks: List[OverviewTaskBody]
    notices: List[str]


class OverviewBody(_OverviewBody, total=False):
    activity: str
    detail: str
    last_restart: str
    restarts: int


#: Highest priority of a job of a queue service; the lowest is 0.
MAX_PRIORITY = 100


class QueuedJobBody(TypedDict):
    """A job of a queue service."""

    id: str
    name: str
    queue: str
    owner: str
    #: From 0 to 100; higher ones first.
    priority: int
    #: queued, starting, running, requeuing, cancelling, quarantined, finished or cancelled.
    state: str
    #: Time of the last change of the state.
    since: float
    submitted: float
    #: Why it waits; of an ended job, its result.
    reason: str
    #: Result of an ended job.
    verdict: Optional[JobVerdict]
    #: From 1; null unless it waits.
    position: Optional[int]
    #: Null if it is unknown, and `grounds` says why.
    expected_start: Optional[float]
    #: What the expected start follows from.
    grounds: str
    #: Time of the last launch of its first gang.
    started: Optional[float]
    #: By its progress, its `expected_seconds`, or earlier jobs with its program.
    expected_end: Optional[float]
    #: Number of times that others have stopped it.
    preemptions: int
    #: What its tasks ask for, with their executors.
    needs: ResourcesBody
    #: Jobs that must have succeeded before.
    after: List[str]
    #: Path of its API and page.
    url: str


class JobsBody(TypedDict):
    jobs: List[QueuedJobBody]


class OwnerUsageBody(TypedDict):
    name: str
    used: ResourcesBody
    running: int
    queued: int
    #: CPU-seconds in the last hour.
    seconds: float


class QueueUsageBody(OwnerUsageBody):
    weight: float
    #: Largest part of a resource that its jobs use.
    share: float
    limits: ResourcesBody
    max_jobs: int


class QueueBody(TypedDict):
    name: str
    order: str
    preemption: str
    #: How the service distinguishes its users.
    identities: str
    #: Why no job is admitted; empty: nothing hinders it.
    problem: str
    capacity: ResourcesBody
    used: ResourcesBody
    queues: List[QueueUsageBody]
    owners: List[OwnerUsageBody]
    #: Those that have not ended: running ones, then waiting ones in their order.
    jobs: List[QueuedJobBody]
    #: The last 20 that have ended, newest first.
    ended: List[QueuedJobBody]
    waiting: int
