"""Two runs side by side; numbers that a run is known by."""

from runs import T0, a_run
from tf_scheduler.history.compare import (
    ValueDifference,
    compare_environments,
    compare_options,
    hidden_options,
    run_results,
)
from tf_scheduler.history.model import ProgressPoint


def test_options_and_versions_that_differ_are_found():
    """Also those that only one of them has."""
    new = a_run(options={"service": {"name": "mnist", "command": "python b.py"}, "chief": {"count": 1}})

    assert [
        ValueDifference("service.command", "python train.py", "python b.py"),
        ValueDifference("worker.count", 2, None),
        ValueDifference("chief.count", None, 1),
    ] == compare_options(a_run().options, new.options)
    assert [ValueDifference("tensorflow", "2.20.0", "2.21.0")] == compare_environments(
        {"python": "3", "tensorflow": "2.20.0"}, {"python": "3", "tensorflow": "2.21.0"}
    )


def test_a_run_is_known_by_its_numbers():
    """The leader's last values, the first step of any task, launches beyond the first."""
    found = run_results(a_run())

    assert (3.0, 8, 0.125, 800.0, "examples a second", 1, 2) == tuple(
        found[name]
        for name in (
            *("seconds to the first step", "last step", "last loss", "last speed", "last speed is in"),
            *("restarts", "generations"),
        )
    )


def test_the_chief_leads_the_workers():
    """Of those that tell their progress."""
    curves = {name: (ProgressPoint(T0, 1),) for name in ("ps-0", "worker-1", "worker-0", "chief-0")}

    assert "chief-0" == a_run(curves=curves).leader
    assert a_run(curves={}).leader is None


def test_hidden_values_are_named():
    """They have to be filled in again."""
    options = {"service": {"environment": {"TOKEN": "***", "A": "b"}, "gcs_key": "***"}}

    assert ["service.environment.TOKEN", "service.gcs_key"] == hidden_options(a_run(options=options), "***")
