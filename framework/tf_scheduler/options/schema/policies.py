"""Schema of `placement`, `gang`, and the policies of running and ended tasks."""

from __future__ import annotations

from tf_executor.contract.settings import LIVENESS_KINDS
from tf_executor.contract.strategies import named
from tf_scheduler.model.placement import GpuScheduling, PlacementStrategy
from tf_scheduler.model.spec import AfterFinish, CleanupPolicy, StorageMode, SuccessPolicy

from .fields import NEXT_LAUNCH_ONLY, Boolean, Integer, IntegerList, OnUpdate, Seconds, Section, String, choice
from .values import parse_line_pattern, parse_storage_options


class PlacementSection(Section):
    strategy = choice(
        "How to distribute tasks. binpack: over as few agents as the constraints allow; spread: over as many agents "
        "as possible.",
        PlacementStrategy.BINPACK,
    )
    gpu_scheduling_behavior = choice(
        "Whether tasks without GPUs use agents with GPUs. restricted: never; unrestricted: after all other agents.",
        GpuScheduling.RESTRICTED,
    )
    near = String(
        "Fields of agents (@region, @zone or attributes), from the largest area to the smallest, separated by commas. "
        "Workers are placed on agents with equal values of the fields, if possible. Empty: no preference.",
        "@zone,rack",
        title="Place near",
    )
    draining_seconds = Seconds(
        "How long before its maintenance an agent stops getting new tasks.", 86_400.0, title="Time before maintenance"
    )


class GangSection(Section):
    hold_seconds = Seconds(
        "Maximum time to hold offers until they fit a whole gang.", 5.0, maximum=60.0, title="Hold offers for"
    )


class RestartSection(Section):
    max_failures = Integer(
        "Allowed failures of a task, or alike ones of its job, in restart.window; one more fails the service.",
        3,
        maximum=100_000,
    )
    window = Seconds("Time after which a failure no longer counts.", 3600.0, minimum=1.0)
    backoff = Seconds("Delay before the first restart; it doubles with each further restart.", 1.0, maximum=3600.0)
    max_backoff = Seconds("Maximum delay before a restart.", 300.0, maximum=86_400.0)
    uncounted_exit_codes = IntegerList(
        "Exit codes of a program that has saved a checkpoint and requests a restart. They do not count as failures.",
        (42, 143),
        minimum=1,
        maximum=255,
    )
    fail_fast = Boolean(
        "Until a task has reported progress, fail the job immediately if its program cannot start, for example because "
        "a module is missing, and if two consecutive launches of a task end with the same error. If other machines "
        "offer resources, a program that cannot start is launched once more. If false, only restart.max_failures "
        "limits such failures.",
        default=True,
    )
    max_uncounted = Integer(
        "Maximum number of ends of a task's program in restart.window that do not count as failures because "
        "infrastructure may be the reason, for example SIGKILL; one more fails the job. Lost agents do not count. "
        "0: unlimited.",
        20,
        maximum=100_000,
        title="Maximum uncounted failures",
    )


class RecoverySection(Section):
    unreachable_timeout = Seconds("Time after which the tasks of an unreachable agent count as lost.", 300.0)
    start_timeout = Seconds(
        "Time limit for an agent to start a task, and for a task's TensorFlow server to respond once the servers of "
        "other tasks respond. A task that exceeds the limit counts as lost. 0: unlimited.",
        600.0,
    )
    shrink_after = Seconds(
        "Time to wait until all workers fit; afterwards worker.min_count workers suffice.",
        60.0,
        title="Shrink the cluster after",
    )
    avoid_after = Integer(
        "Number of failed launches on an agent, within recovery.avoid_for, after which the scheduler avoids the agent. "
        "A failed launch was lost or did not start. 0: never avoid an agent.",
        3,
        maximum=100_000,
        title="Failed launches before avoiding an agent",
    )
    avoid_for = Seconds(
        "Time to avoid an agent, or less if the other agents are insufficient.",
        900.0,
        minimum=1.0,
        title="Avoid an agent for",
    )


class HealthSection(Section):
    liveness = String(
        "How to check a running program. command: health.target exits with 0. http: a GET of health.target returns a "
        f"status from 200 to 399. progress: the program reports progress. {NEXT_LAUNCH_ONLY}",
        "none",
        choices=("none", *LIVENESS_KINDS),
        title="Liveness check",
    )
    target = String(
        "Command line or URL to check; required if health.liveness is command or http. The task's port "
        f"replaces {{port}}. {NEXT_LAUNCH_ONLY}",
        examples=["http://127.0.0.1:{port}/health"],
        title="Check target",
    )
    interval = Seconds(f"Time between two checks. {NEXT_LAUNCH_ONLY}", 10.0, minimum=0.1, maximum=86_400.0)
    timeout = Seconds(
        f"Timeout of one check; if health.liveness is progress: maximum time between reports. {NEXT_LAUNCH_ONLY}",
        20.0,
        minimum=0.1,
    )
    grace = Seconds(
        "Time after a program's start during which failed checks do not count. Silence does not count either "
        "(health.stalled_after), until the program reports progress. The import of TensorFlow can take more than a "
        f"minute on a busy agent. {NEXT_LAUNCH_ONLY}",
        300.0,
    )
    failures = Integer(
        f"Number of consecutive failed checks after which the task counts as failed. {NEXT_LAUNCH_ONLY}",
        3,
        minimum=1,
        maximum=1000,
        title="Failed checks",
    )
    jobs = String(
        f"Sections whose tasks are checked, separated by commas; empty: all sections. {NEXT_LAUNCH_ONLY}",
        "chief,worker,gpu_worker",
    )
    stalled_after = Seconds(
        "Time with neither progress nor output after which a task counts as failed; 0: never. The time begins with the "
        "first progress report, or after health.grace. Tasks that write nothing during training are not checked: "
        "parameter servers, and workers if service.strategy is "
        f"{named(lambda traits: traits.chief_coordinates, 'or')}. "
        f"{NEXT_LAUNCH_ONLY}",
        0.0,
        title="Replace stalled tasks after",
    )
    frozen_after = Seconds(
        "Time without output and progress after which a frozen task is replaced; 0: never. A task is frozen if one "
        "of its processes is stopped by a signal, or if one is blocked by a disk, device or network file system and "
        "none uses CPU time. "
        f"All tasks are checked. A frozen task is reported within 60 s. {NEXT_LAUNCH_ONLY}",
        900.0,
        title="Replace frozen tasks after",
    )


class ProgressSection(Section):
    from_output = Boolean(
        "Read step, loss and metrics from what the program prints: Keras' progress bars, lines of Estimators, and "
        "lines such as step 120/500 loss 0.3. Reports of the program take precedence, and event files of TensorBoard "
        f"that are not behind the output. {NEXT_LAUNCH_ONLY}",
        default=True,
    )
    pattern = String(
        "Regular expression (Python) to search for in the first 1024 characters of each printed line, instead of the "
        "common forms. The names of its groups are step, total, epoch, epochs, loss, examples, or names of metrics. "
        "Slow expressions are refused, for example with repeated groups, back-references or look-around. "
        f"{NEXT_LAUNCH_ONLY}",
        parse=parse_line_pattern,
        examples=[r"iter (?P<step>\d+)/(?P<total>\d+): loss=(?P<loss>\S+)"],
    )


class StorageSection(Section):
    mode = choice(
        "How checkpoints get to service.checkpoint_dir. mounted: it is a path. direct: it is a URL to which the task's "
        "TensorFlow writes. carried: it is a URL, tasks use a local folder, and complete checkpoints are stored by the "
        "chief or, without a chief, worker 0. auto: mounted for a path; for a URL, direct if the task's TensorFlow can "
        "write to it, otherwise carried.",
        StorageMode.AUTO,
        update=OnUpdate.RESTART,
        title="Storage of checkpoints",
    )
    every = Seconds(
        f"Time between two looks for new checkpoints to carry. {NEXT_LAUNCH_ONLY}",
        60.0,
        minimum=1.0,
        title="Carry checkpoints every",
    )
    keep = Integer(
        f"Number of checkpoints to keep in the storage. {NEXT_LAUNCH_ONLY}", 3, minimum=1, title="Stored checkpoints"
    )
    options = String(
        "JSON object, as text: options of the file system in fsspec, for example the address of an S3-compatible "
        "server. Credentials are secrets (docs/how-to/recipes.md). Empty: none.",
        parse=parse_storage_options,
        update=OnUpdate.RESTART,
        title="Options of the file system",
        examples=['{"endpoint_url": "https://s3.example.com"}'],
    )


class FinishSection(Section):
    success = choice(
        "Tasks whose success ends the job. chief: the chief or, without a chief, worker 0. all_workers, any_worker: a "
        "chief counts as a worker. default: all_workers if service.strategy is "
        f"{named(lambda traits: traits.ends_with_all, 'or')}; "
        "otherwise chief.",
        SuccessPolicy.DEFAULT,
        title="Success of the job",
    )
    clean_up = choice(
        "Tasks to stop when the job ends. running: all running tasks. all: same as running, because finished tasks "
        "have no processes on Mesos. none: tasks keep running for finish.keep_seconds.",
        CleanupPolicy.RUNNING,
        title="Tasks to stop",
    )
    deadline = Seconds(
        "Maximum time from the first launch to the end of the job; then the job fails. 0: unlimited.", 0.0
    )
    then = choice(
        "Action after the job. teardown: leave Mesos. keep_tensorboard: run TensorBoard for finish.keep_seconds, then "
        "leave Mesos. idle: stay registered without tasks until the service is stopped.",
        AfterFinish.TEARDOWN,
        title="Action after the job",
    )
    keep_seconds = Seconds(
        "Time to keep tasks running after the job; 0: until the service is stopped.", 3600.0, title="Keep tasks for"
    )
    evaluator_seconds = Seconds(
        "Time for the evaluator to process the last checkpoint after the job succeeds.",
        60.0,
        title="Time for the evaluator",
    )
