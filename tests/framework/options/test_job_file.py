"""Job files, and the options of a queue service."""

from __future__ import annotations

import pytest

from tf_scheduler.errors import OptionsError
from tf_scheduler.options.job_file import JobFields, split_job
from tf_scheduler.options.load import data_has_addresses, program_is_named, resolve
from tf_scheduler.options.warnings import find_local_warnings, find_warnings

QUEUE = {"service": {"name": "ml", "kind": "queue"}}


def test_section_is_removed_from_options() -> None:
    job = {
        "queue": "research",
        "priority": 50,
        "after": ["a", "b-1"],
        "id": "c",
        "owner": "Ann",
        "expected_seconds": 60,
    }
    document = {"service": {"command": "x"}, "job": job}

    fields, options = split_job(document)

    assert JobFields("research", 50, ("a", "b-1"), "c", "Ann", 60.0) == fields
    assert ({"service": {"command": "x"}}, job) == (options, document["job"])


def test_omitted_section_has_defaults() -> None:
    """A file for a service of its own is a job file, too."""
    assert (JobFields(), {"worker": {"count": 1}}) == split_job({"worker": {"count": 1}})
    assert split_job({"job": {}}) == split_job({})


def test_all_problems_are_reported_together() -> None:
    """A user who submits a file corrects it once."""
    job = {"id": "Mine/a", "after": ["a", 2, "-"], "priority": 101, "prio": 1, "owner": "a\n", "queue": "a" * 64}

    with pytest.raises(OptionsError) as error:
        split_job({"job": job, "worker": {"cpus": "2"}, "wrong": 1})

    paths = ["job.after.1", "job.after.2", "job.id", "job.owner", "job.prio", "job.priority", "job.queue"]
    assert [*paths, "worker.cpus", "wrong"] == [problem.path for problem in error.value.problems]


@pytest.mark.parametrize("section", [1, None, [], "a"])
def test_section_of_another_type_is_refused(section: object) -> None:
    with pytest.raises(OptionsError, match="job: must"):
        split_job({"job": section})


def test_section_is_ignored_without_queue_with_a_notice() -> None:
    """A job file must work alone, too."""
    document = {"service": {"command": "x", "strategy": "independent"}, "job": {"priority": 1}}
    options = resolve(split_job(document)[1])

    for find in (find_warnings, find_local_warnings):
        assert ["job: has no effect: only a queue service uses it"] == [
            str(notice) for notice in find(document, options) if notice.path == "job"
        ]


def test_queue_service_needs_no_program() -> None:
    """Its options are the defaults of its jobs, which name their programs."""
    document = {**QUEUE, "worker": {"cpus": 2}}

    options = resolve(document, more_rules=(program_is_named, data_has_addresses))

    assert [] == [*find_warnings(document, options), *find_local_warnings(document, options)]
    with_command = {**QUEUE, "service": {**QUEUE["service"], "command": "python train.py"}}
    assert [] == find_local_warnings(with_command, resolve(with_command))
    with pytest.raises(OptionsError, match=r"service\.command: required"):
        resolve({}, more_rules=(program_is_named,))


def test_queue_options_are_checked() -> None:
    queues = [{"name": "a"}, {"name": "A"}, {"name": "a/b"}, {"name": "b", "weight": "2", "gpus": 0.5}, {}]

    with pytest.raises(OptionsError) as error:
        resolve({**QUEUE, "queue": {"queues": queues, "order": "random", "preemption": "fair"}})

    wrong = ["1.name", "2.name", "3.gpus", "3.weight", "4.name"]
    assert ["queue.order", *(f"queue.queues.{path}" for path in wrong)] == [each.path for each in error.value.problems]
