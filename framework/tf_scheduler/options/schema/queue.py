"""Schema of a queue service, and of the section `job` of the files of its jobs."""

from __future__ import annotations

from tf_executor.contract.bodies import MAX_PRIORITY
from tf_scheduler.queue.preemption import Preemption
from tf_scheduler.queue.shares import Order

from .fields import Integer, NameList, Number, RecordList, Seconds, Section, String, section

#: A service name without folders, which is at most a DNS label.
WORD = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
WORD_EXPECTED = "lower-case letters, digits and dashes inside, at most 63 characters"
#: A line of text without control characters.
LINE, ONE_LINE = r"[^\x00-\x1f\x7f]+", "one line, without control characters"

_NO_LIMIT = "0: no limit."


class QueueRecord(Section):
    """Schema of an entry of `queue.queues`."""

    name = String(
        "Name of the queue.", required=True, non_empty=True, pattern=WORD, expected=WORD_EXPECTED, examples=["research"]
    )
    weight = Number("Weight of the share of the queue.", 1.0, minimum=0.01, maximum=1000.0)
    cpus = Number(f"Maximum CPUs of running jobs of the queue. {_NO_LIMIT}", 0.0, maximum=1_000_000.0, unit="cores")
    mem = Integer(f"Maximum memory of running jobs of the queue. {_NO_LIMIT}", 0, maximum=1_000_000_000, unit="MB")
    gpus = Integer(f"Maximum GPUs of running jobs of the queue. {_NO_LIMIT}", 0)
    max_jobs = Integer(f"Maximum number of running jobs of the queue. {_NO_LIMIT}", 0)


class QueueSection(Section):
    queues = RecordList(QueueRecord, "Queues of jobs. Empty: one queue, named default, without limits.")
    order = String(
        "Order in which jobs start. fair: of the queue that was served least, in shares of its scarcest resource times "
        "seconds, divided by its weight; in a queue by priority, then by time. priority: by priority, then by time. "
        "fifo: by time.",
        Order.FAIR.value,
        choices=[each.value for each in Order],
    )
    preemption = String(
        "Jobs that stop, with a checkpoint, for another job, and are queued again. never: none. priority: jobs of "
        "lower priority. fair: also jobs of queues that use more than their share.",
        Preemption.NEVER.value,
        choices=[each.value for each in Preemption],
    )
    start_timeout = Seconds(
        "Time in which the first tasks of a job must get their resources; afterwards the job is queued again.",
        600.0,
        minimum=1.0,
    )
    min_runtime = Seconds("Time for which a job runs before it may be stopped for another one.", 600.0)
    keep_results = Integer("Number of ended jobs to keep.", 1000, maximum=100_000, title="Ended jobs to keep")


class JobFileSection(Section):
    """Schema of the section `job` of a job file; the options of a service lack it."""

    queue = String("Queue of the job. Empty: the first of queue.queues.", pattern=WORD, expected=WORD_EXPECTED)
    priority = Integer("Priority of the job: a higher one starts earlier.", 0, maximum=MAX_PRIORITY)
    after = NameList(
        "Ids of the jobs that must have succeeded before this one starts.", pattern=WORD, expected=WORD_EXPECTED
    )
    id = String(
        "Id of the job in its service, which is never used again. Empty: the service chooses one.",
        pattern=WORD,
        expected=WORD_EXPECTED,
    )
    owner = String("Owner of the job: the user who submits it, or empty.", pattern=LINE, expected=ONE_LINE)
    expected_seconds = Seconds("Time that the job is expected to run. 0: unknown.", 0.0)


class JobDocument(Section):
    """Schema of what only a job file has."""

    job = section(JobFileSection, "Place of a job in the queue of its service. Only job files have this section.")
