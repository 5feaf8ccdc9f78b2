"""Schema of `restart`, `recovery`, `health` and `finish`: policies for failed, lost and finished tasks."""

from __future__ import annotations

from tf_scheduler.model.spec import AfterFinish, CleanupPolicy, LivenessKind, SuccessPolicy

from .fields import NEXT_LAUNCH_ONLY, Integer, IntegerList, Number, Section, String, option_metadata

#: One year, in seconds.
LONGEST = 31_536_000.0


class RestartSection(Section):
    max_failures = Integer(
        load_default=3,
        maximum=100_000,
        metadata=option_metadata("Maximum failures of a task within restart.window."),
    )
    window = Number(
        load_default=3600.0,
        minimum=1.0,
        maximum=LONGEST,
        unit="seconds",
        metadata=option_metadata("Time during which failures count.", "seconds"),
    )
    backoff = Number(
        load_default=1.0,
        maximum=3600.0,
        unit="seconds",
        metadata=option_metadata("Delay before the first restart; it doubles with each further restart.", "seconds"),
    )
    max_backoff = Number(
        load_default=300.0,
        maximum=86_400.0,
        unit="seconds",
        metadata=option_metadata("Maximum delay before a restart.", "seconds"),
    )
    uncounted_exit_codes = IntegerList(
        load_default=(42, 143),
        minimum=1,
        maximum=255,
        metadata=option_metadata(
            "Exit codes of a program that has saved a checkpoint and requests a restart. They do not "
            "count as failures.",
        ),
    )


class RecoverySection(Section):
    unreachable_timeout = Number(
        load_default=300.0,
        maximum=LONGEST,
        unit="seconds",
        metadata=option_metadata("Time to wait for the tasks of an unreachable agent.", "seconds"),
    )
    start_timeout = Number(
        load_default=600.0,
        maximum=LONGEST,
        unit="seconds",
        metadata=option_metadata(
            "Timeout of an agent that starts a task, and of a program's TensorFlow server once servers of "
            "other tasks respond. After the timeout the task counts as lost. 0: unlimited.",
            "seconds",
        ),
    )
    shrink_after = Number(
        load_default=60.0,
        maximum=LONGEST,
        unit="seconds",
        metadata=option_metadata(
            "Time to look for places for all workers before a restart with worker.min_count.", "seconds"
        ),
    )
    avoid_after = Integer(
        load_default=3,
        maximum=100_000,
        metadata=option_metadata(
            "Number of lost or unstarted launches on an agent within avoid_for after which the agent is "
            "avoided; 0: never."
        ),
    )
    avoid_for = Number(
        load_default=900.0,
        minimum=1.0,
        maximum=LONGEST,
        unit="seconds",
        metadata=option_metadata("Time to avoid an agent while other agents are sufficient.", "seconds"),
    )


class HealthSection(Section):
    liveness = String(
        load_default="none",
        choices=("none", *(kind.value for kind in LivenessKind)),
        metadata=option_metadata(
            "Liveness check of a running program. command: target exits with 0; http: a GET of target "
            f"returns a status from 200 to 399; progress: progress reports arrive. {NEXT_LAUNCH_ONLY}"
        ),
    )
    target = String(
        load_default="",
        metadata=option_metadata(
            f"Command line or URL of the check; {{port}} is replaced by the task's port. {NEXT_LAUNCH_ONLY}",
            examples=["http://127.0.0.1:{port}/health"],
        ),
    )
    interval = Number(
        load_default=10.0,
        minimum=0.1,
        maximum=86_400.0,
        unit="seconds",
        metadata=option_metadata(f"Time between two checks. {NEXT_LAUNCH_ONLY}", "seconds"),
    )
    timeout = Number(
        load_default=20.0,
        minimum=0.1,
        maximum=LONGEST,
        unit="seconds",
        metadata=option_metadata(
            f"Timeout of one check; for progress: maximum time between reports. {NEXT_LAUNCH_ONLY}", "seconds"
        ),
    )
    grace = Number(
        load_default=300.0,
        maximum=LONGEST,
        unit="seconds",
        metadata=option_metadata(
            f"Time after the start during which failed checks do not count. {NEXT_LAUNCH_ONLY}", "seconds"
        ),
    )
    failures = Integer(
        load_default=3,
        minimum=1,
        maximum=1000,
        metadata=option_metadata(
            f"Number of consecutive failed checks after which the task counts as failed. {NEXT_LAUNCH_ONLY}"
        ),
    )
    jobs = String(
        load_default="chief,worker,gpu_worker",
        metadata=option_metadata(
            f"Sections whose tasks are checked, separated by commas; empty: all. {NEXT_LAUNCH_ONLY}"
        ),
    )
    stalled_after = Number(
        load_default=0.0,
        maximum=LONGEST,
        unit="seconds",
        metadata=option_metadata(
            "Time without progress and output after which a task counts as failed; 0: never. Not checked: "
            "parameter servers, and workers with strategy parameter_server, because they write nothing "
            f"while they train. {NEXT_LAUNCH_ONLY}",
            "seconds",
        ),
    )


class FinishSection(Section):
    success = String(
        load_default=SuccessPolicy.DEFAULT.value,
        choices=[item.value for item in SuccessPolicy],
        metadata=option_metadata(
            "Tasks whose success ends the job. chief: worker 0 if the job has no chief; all_workers, "
            "any_worker: a chief counts as a worker; default: all_workers with strategy independent, "
            "pytorch_ddp or horovod, otherwise chief."
        ),
    )
    clean_up = String(
        load_default=CleanupPolicy.RUNNING.value,
        choices=[item.value for item in CleanupPolicy],
        metadata=option_metadata(
            "Tasks to stop with the job. running: all running tasks; all: same as running, because Mesos "
            "keeps only the files of finished tasks; none: no task, for keep_seconds."
        ),
    )
    deadline = Number(
        load_default=0.0,
        maximum=LONGEST,
        unit="seconds",
        metadata=option_metadata(
            "Maximum time from the first launch to the end of the job; 0: unlimited. After the deadline the job fails.",
            "seconds",
        ),
    )
    then = String(
        load_default=AfterFinish.TEARDOWN.value,
        choices=[item.value for item in AfterFinish],
        metadata=option_metadata(
            "Action after the job. teardown: leave Mesos; keep_tensorboard: leave Mesos after TensorBoard "
            "has run for keep_seconds; idle: stay registered without tasks until the service is stopped."
        ),
    )
    keep_seconds = Number(
        load_default=3600.0,
        maximum=LONGEST,
        unit="seconds",
        metadata=option_metadata(
            "Time to keep tasks running after the job; 0: until the service is stopped.", "seconds"
        ),
    )
    evaluator_seconds = Number(
        load_default=60.0,
        maximum=LONGEST,
        unit="seconds",
        metadata=option_metadata(
            "Time for the evaluator to process the last checkpoint after the job succeeds.", "seconds"
        ),
    )
