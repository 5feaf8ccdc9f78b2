"""Comparison of two runs, and the main results of one."""

from dataclasses import replace

from runs import T0, a_run
from tf_scheduler.history.compare import (
    ValueDifference,
    compare_options,
    compare_results,
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


def test_examples_of_tasks_are_summed_up() -> None:
    """Those of the whole job are the same in each task."""
    curves = {
        name: (ProgressPoint(T0, 1, speed=9.0, metrics={"a": 1.0, "b": 1.0}), ProgressPoint(T0 + 1, 2, speed=speed))
        for name, speed in (("worker-0", 100.0), ("worker-1", 80.0))
    }
    results = run_results(a_run(curves=curves))
    assert (180.0, 1.0, 1.0) == (results["last speed"], results["last a"], results["last b"])

    steps = run_results(a_run(curves=curves, unit="steps"))
    assert 100.0 == steps["last speed"]

    whole = {
        name: tuple(replace(point, of="job", unit="examples") for point in points) for name, points in curves.items()
    }
    assert 100.0 == run_results(a_run(curves=whole))["last speed"]


def test_metric_of_one_run_is_compared() -> None:
    curves = {"worker-0": (ProgressPoint(T0, 1, metrics={"accuracy": 0.5}),)}
    differences = compare_results(a_run(), a_run(curves=curves))
    assert ValueDifference("last accuracy", None, 0.5) in differences


def test_chief_leads_the_workers() -> None:
    """Among the tasks that report progress."""
    curves = {name: (ProgressPoint(T0, 1),) for name in ("ps-0", "worker-1", "worker-0", "chief-0")}

    assert "chief-0" == a_run(curves=curves).leader
    assert a_run(curves={}).leader is None


def test_masked_options_are_listed() -> None:
    """The user has to fill them in."""
    options = {"service": {"environment": {"TOKEN": "***", "A": "b"}, "gcs_key": "***"}}

    assert ["service.environment.TOKEN", "service.gcs_key"] == hidden_options(a_run(options=options), "***")
