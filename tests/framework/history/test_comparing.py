"""Comparison of two runs, and the main results of one."""

from dataclasses import replace

from runs import a_launch, a_point, a_run
from tf_scheduler.history.compare import (
    ValueDifference,
    compare_options,
    compare_results,
    compare_values,
    hidden_options,
    run_results,
    run_texts,
)


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

    assert {
        "state": "succeeded",
        "seconds": 10.0,
        "seconds_to_first_step": 3.0,
        "last_step": 8,
        "last_loss": 0.125,
        "best_loss": 0.125,
        "median_examples_per_second": 400.0,
        "restarts": 1,
        "generations": 2,
    } == results


def test_run_texts_are_those_of_a_list() -> None:
    """The best values are those of the leader's metrics."""
    assert {"time": "10 s", "step": "8", "loss": "0.125", "best": "loss 0.125"} == run_texts(a_run())


def test_only_relaunches_for_an_own_cause_are_restarts() -> None:
    """Not peers, in the words of any version, nor a launch that was the last."""
    reasons = ("worker-0: killed", "restarts with worker-1", "", "worker-0: killed")
    launches = tuple(a_launch(launched=float(at), replaced=why) for at, why in enumerate(reasons))

    assert (launches[0],) == tuple(a_run(launches=launches).restarted)


def test_pause_at_the_end_does_not_change_the_speed() -> None:
    speeds = (1000.0, 1100.0, 2400.0, 1050.0, 0.0, 470.0)
    points = tuple(a_point(at, at, speed=speed, unit="steps") for at, speed in enumerate(speeds))
    assert 1025.0 == run_results(a_run(curves={"worker-0": points}))["median_steps_per_second"]


def test_best_value_depends_on_the_metric() -> None:
    """Errors are best when low; a best value may lie between the kept points."""
    values = [(0.5, 0.7, 3.0), (0.2, 0.9, 1.0), (0.4, 0.8, 2.0), (float("nan"), float("inf"), 2.5)]
    names = ("val_loss", "accuracy", "mean_absolute_error")
    points = tuple(a_point(at, at, metrics=dict(zip(names, row, strict=True))) for at, row in enumerate(values))
    results = run_results(a_run(curves={"worker-0": points}))
    assert [0.2, 0.9, 1.0] == [results[f"best_{name}"] for name in names]
    assert 2.5 == results["last_mean_absolute_error"]

    kept = a_run(curves={"worker-0": points}, best={"accuracy": 0.95})
    assert (0.95, None) == tuple(run_results(kept)[f"best_{name}"] for name in ("accuracy", "val_loss"))


STEPS = {"steps_per_second": 100.0, "examples_per_second": None}


def test_examples_of_tasks_are_summed_up() -> None:
    """Those of the whole job are the same in each task."""
    curves = {
        name: (a_point(0, 1), a_point(1, 2, speed=speed, metrics={"a": 1.0, "b": 1.0}))
        for name, speed in (("worker-0", 100.0), ("worker-1", 80.0))
    }
    results = run_results(a_run(curves=curves))
    assert (180.0, 1.0, 1.0) == (results["median_examples_per_second"], results["last_a"], results["last_b"])

    for changed, name in ((STEPS, "steps"), ({"of": "job"}, "examples")):
        others = {task: (first, replace(last, **changed)) for task, (first, last) in curves.items()}
        assert 100.0 == run_results(a_run(curves=others))[f"median_{name}_per_second"]


def test_metric_of_one_run_is_compared() -> None:
    curves = {"worker-0": (a_point(0, 1, metrics={"accuracy": 0.5}),)}
    differences = compare_results(a_run(), a_run(curves=curves))
    assert ValueDifference("last_accuracy", None, 0.5) in differences


def test_chief_leads_the_workers() -> None:
    """Among the tasks that report progress."""
    curves = {name: (a_point(0, 1),) for name in ("ps-0", "worker-1", "worker-0", "chief-0")}

    assert "chief-0" == a_run(curves=curves).leader
    assert a_run(curves={}).leader is None


def test_masked_options_are_listed() -> None:
    """The user has to fill them in."""
    options = {"service": {"environment": {"TOKEN": "***", "A": "b"}, "gcs_key": "***"}}

    assert ["service.environment.TOKEN", "service.gcs_key"] == hidden_options(a_run(options=options), "***")
