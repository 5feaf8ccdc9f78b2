"""Comparison of two runs, and the main results of one."""

from runs import T0, a_run
from tf_scheduler.history.compare import (
    ValueDifference,
    compare_options,
    compare_values,
    hidden_options,
    run_results,
)
from tf_scheduler.history.model import ProgressPoint


def test_compare_finds_different_options_and_versions() -> None:
    """Also those that only one run has."""
    new = a_run(options={"service": {"name": "mnist", "command": "python b.py"}, "chief": {"count": 1}})

    assert [
        ValueDifference("service.command", "python train.py", "python b.py"),
        ValueDifference("worker.count", 2, None),
        ValueDifference("chief.count", None, 1),
    ] == compare_options(a_run().options, new.options)
    assert [ValueDifference("tensorflow", "2.20.0", "2.21.0")] == compare_values(
        {"python": "3", "tensorflow": "2.20.0"}, {"python": "3", "tensorflow": "2.21.0"}
    )


def test_run_results_are_those_of_the_leader() -> None:
    """With the first step of any task, and launches beyond the first."""
    results = run_results(a_run())

    assert (3.0, 8, 0.125, 800.0, "examples a second", 1, 2) == tuple(
        results[name]
        for name in (
            *("seconds to the first step", "last step", "last loss", "last speed", "last speed is in"),
            *("restarts", "generations"),
        )
    )


def test_chief_leads_the_workers() -> None:
    """Among the tasks that report progress."""
    curves = {name: (ProgressPoint(T0, 1),) for name in ("ps-0", "worker-1", "worker-0", "chief-0")}

    assert "chief-0" == a_run(curves=curves).leader
    assert a_run(curves={}).leader is None


def test_masked_options_are_listed() -> None:
    """The user has to fill them in."""
    options = {"service": {"environment": {"TOKEN": "***", "A": "b"}, "gcs_key": "***"}}

    assert ["service.environment.TOKEN", "service.gcs_key"] == hidden_options(a_run(options=options), "***")
