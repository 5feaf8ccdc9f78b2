"""Jobs that must end: the comparison with the expected end."""

from chaos.evidence import Heard, Launched, Record
from chaos.faults import JOBS
from chaos.jobs import TRIALS, Trial, unexpected, until_over


def a_record(*addresses):
    """The launches of one task, each of which has ended."""
    launches = tuple(Launched(2.0 * n, "worker-0", f"{n}", address, "a") for n, address in enumerate(addresses))
    ends = (Heard(launch.time + 1, launch.time + 1, launch.id, "failed", True, False) for launch in launches)
    return Record(launched=launches, heard=tuple(ends))


TRIAL = Trial("a job", {}, until_over, words=("nope",), launches=2)


def differences(record, verdict="failed", reason="No module named 'nope'", trial=TRIAL):
    return list(unexpected(trial, record, verdict, reason))


def test_every_fault_of_a_job_has_jobs() -> None:
    assert list(JOBS) == list(TRIALS)
    assert all(TRIALS.values())


def test_expected_end_has_no_differences() -> None:
    assert [] == differences(a_record("h:1", "h:1"))


def test_other_ends_are_described() -> None:
    assert ["the result is `did not end` instead of `failed`: ", "the reason does not contain `nope`: "] == differences(
        a_record("h:1"), "did not end", ""
    )
    assert ["worker-0 was launched 3 times"] == differences(a_record("h:1", "h:1", "h:1"))
    assert ["worker-0 has moved: h:1, h:2"] == differences(a_record("h:1", "h:2"))


def test_task_may_move_if_its_job_says_so() -> None:
    trial = Trial("a job", {}, until_over, moves=True)

    assert [] == differences(a_record("h:1", "h:2"), trial=trial)
