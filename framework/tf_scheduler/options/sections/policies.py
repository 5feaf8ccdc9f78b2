"""`restart`, `recovery`, `health`, `finish`: what happens to tasks that fail, get lost, hang or end."""

from __future__ import annotations

from tf_scheduler.model.policy import CleanUp, SuccessPolicy, Then
from tf_scheduler.model.program import LivenessKind
from tf_scheduler.options.fields import Number, Text, Whole
from tf_scheduler.options.lists import Wholes

from .base import FROM_NOW_ON, Section, about

#: A year: longer than any training that we know of.
LONGEST = 31_536_000.0


class RestartSection(Section):
    """How often tasks that failed by themselves are started again."""

    max_failures = Whole(
        load_default=3,
        most=100_000,
        metadata=about("How many failures of a task within the window are forgiven."),
    )
    window = Number(
        load_default=3600.0,
        least=1.0,
        most=LONGEST,
        unit="seconds",
        metadata=about("The time in which failures count.", "seconds"),
    )
    backoff = Number(
        load_default=1.0,
        most=3600.0,
        unit="seconds",
        metadata=about("Wait before the first restart; it doubles with each that follows.", "seconds"),
    )
    max_backoff = Number(
        load_default=300.0,
        most=86_400.0,
        unit="seconds",
        metadata=about("The longest such wait.", "seconds"),
    )
    uncounted_exit_codes = Wholes(
        load_default=(42, 143),
        least=1,
        most=255,
        metadata=about(
            "Exit codes that mean: my checkpoint is saved, start me again. They do not count as failures.",
        ),
    )


class RecoverySection(Section):
    """When a task counts as lost."""

    unreachable_timeout = Number(
        load_default=300.0,
        most=LONGEST,
        unit="seconds",
        metadata=about("How long the tasks of an agent that does not answer are waited for.", "seconds"),
    )
    start_timeout = Number(
        load_default=600.0,
        most=LONGEST,
        unit="seconds",
        metadata=about(
            "How long after its start a program may take until its TensorFlow server answers, once those of others do; "
            "and a launch until its agent has started it. Then the task counts as lost. 0: for ever.",
            "seconds",
        ),
    )
    shrink_after = Number(
        load_default=60.0,
        most=LONGEST,
        unit="seconds",
        metadata=about("How long a restart looks for places for all before worker.min_count will do.", "seconds"),
    )
    avoid_after = Whole(
        load_default=3,
        most=100_000,
        metadata=about("How many launches lost, or not begun, on an agent within avoid_for make it avoided; 0: none."),
    )
    avoid_for = Number(
        load_default=900.0,
        least=1.0,
        most=LONGEST,
        unit="seconds",
        metadata=about("How long an agent is avoided, as long as others will do.", "seconds"),
    )


class HealthSection(Section):
    liveness = Text(
        load_default="none",
        choices=("none", *(kind.value for kind in LivenessKind)),
        metadata=about(
            "How to see that a program that runs still works. command: target exits with 0; http: a GET of target "
            f"gives a status from 200 to 399; progress: reports come. {FROM_NOW_ON}"
        ),
    )
    target = Text(
        load_default="",
        metadata=about(
            f"Command line or URL; {{port}} in it is the task's port. {FROM_NOW_ON}",
            examples=["http://127.0.0.1:{port}/health"],
        ),
    )
    interval = Number(
        load_default=10.0,
        least=0.1,
        most=86_400.0,
        unit="seconds",
        metadata=about(f"Time between two looks. {FROM_NOW_ON}", "seconds"),
    )
    timeout = Number(
        load_default=20.0,
        least=0.1,
        most=LONGEST,
        unit="seconds",
        metadata=about(f"Time for one look; for progress: how long no report may come. {FROM_NOW_ON}", "seconds"),
    )
    grace = Number(
        load_default=300.0,
        most=LONGEST,
        unit="seconds",
        metadata=about(f"Time after the start in which nothing counts. {FROM_NOW_ON}", "seconds"),
    )
    failures = Whole(
        load_default=3,
        least=1,
        most=1000,
        metadata=about(f"After how many bad looks in a row the task counts as failed. {FROM_NOW_ON}"),
    )
    jobs = Text(
        load_default="chief,worker,gpu_worker",
        metadata=about(f"Sections whose tasks are looked at, with commas between; empty: all. {FROM_NOW_ON}"),
    )
    stalled_after = Number(
        load_default=0.0,
        most=LONGEST,
        unit="seconds",
        metadata=about(
            "Without any progress and output for so long a task counts as failed; 0: never. Not looked at: parameter "
            f"servers, and workers with strategy parameter_server, which are silent by nature. {FROM_NOW_ON}",
            "seconds",
        ),
    )


class FinishSection(Section):
    """When the job is done, and what becomes of the rest."""

    success = Text(
        load_default=SuccessPolicy.DEFAULT.value,
        choices=[item.value for item in SuccessPolicy],
        metadata=about(
            "Whose success is the job's. chief: worker 0's where there is no chief; all_workers, any_worker: a chief "
            "counts as one of them; default: all_workers with strategy independent, pytorch_ddp or horovod, else chief."
        ),
    )
    clean_up = Text(
        load_default=CleanUp.RUNNING.value,
        choices=[item.value for item in CleanUp],
        metadata=about(
            "What is ended with the job. running: what still runs; all: the same, since Mesos keeps nothing of tasks "
            "that have ended but their files; none: nothing, for keep_seconds."
        ),
    )
    deadline = Number(
        load_default=0.0,
        most=LONGEST,
        unit="seconds",
        metadata=about("How long after its first launch the job may run before it fails; 0: for ever.", "seconds"),
    )
    then = Text(
        load_default=Then.TEARDOWN.value,
        choices=[item.value for item in Then],
        metadata=about(
            "What the service does after the job. teardown: it leaves Mesos; keep_tensorboard: the same, but "
            "TensorBoard goes on for keep_seconds; idle: it stays, without tasks, until it is ended."
        ),
    )
    keep_seconds = Number(
        load_default=3600.0,
        most=LONGEST,
        unit="seconds",
        metadata=about("That time; 0: until the service is ended.", "seconds"),
    )
    evaluator_seconds = Number(
        load_default=60.0,
        most=LONGEST,
        unit="seconds",
        metadata=about(
            "How long the evaluator may go on after the success of the job, for the last checkpoint.", "seconds"
        ),
    )
