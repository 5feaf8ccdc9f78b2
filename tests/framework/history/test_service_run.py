"""Import of a service's recording as a run."""

import json
from pathlib import Path

import pytest

from tf_scheduler.errors import JobError
from tf_scheduler.history.model import from_json, to_json
from tf_scheduler.history.record import service_run
from tf_scheduler.report import render_page

LAUNCHED = {"launched": "worker-0__a", "task": "worker-0", "generation": 1, "agent": "agent-1", "address": "a:1"}
LINES = [
    {"t": 1000.0, **LAUNCHED},
    {"t": 1002.0, "status": "worker-0__a", "state": "running"},
    {"t": 1003.5, "progress": "worker-0", "step": 3, "loss": 0.5, "steps_per_second": None},
    {"t": 1010.0, "status": "worker-0__a", "state": "finished", "ended": True},
    {"t": 1010.5, "result": "succeeded", "reason": "worker-0 has finished"},
]


def recorded(path, lines):
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_service_run_has_times_tasks_and_result(tmp_path: Path) -> None:
    """It can be stored and drawn as any other run."""
    run = service_run(recorded(tmp_path / "r", LINES), "dev/mnist", {"service": {"name": "dev/mnist"}})

    assert run.id.startswith("dev-mnist-19700101-001640-")
    assert ("succeeded", "worker-0 has finished", 1000.0, 10.5) == (
        run.state,
        run.reason,
        run.submitted,
        run.seconds,
    )
    assert (3, 3.5, "finished") == (run.last.step, run.first_step, run.launches[0].state)
    assert run == from_json(json.loads(json.dumps(to_json(run))))
    assert "worker-0" in render_page(run)


def test_longer_recording_is_the_same_run(tmp_path: Path) -> None:
    """The first copy was taken while the service ran, with an incomplete last line."""
    early = recorded(tmp_path / "early", LINES[:2])
    early.write_text(early.read_text() + '{"t": 10')

    before, after = (service_run(path, "mnist", {}) for path in (early, recorded(tmp_path / "late", LINES)))

    assert before.id == after.id
    assert ("running", "succeeded") == (before.state, after.state)


@pytest.mark.parametrize(
    "text",
    [
        *("", "no recording\n", '{"a": 1}\n[]\n"t"\n', "[" * 100_000, "9" * 90_000),
        *('{"launched": []}', '{"launched": "a"}', '{"progress": 1}', '{"warning": 1}'),
        json.dumps({"t": 1e300, **LAUNCHED}),
        json.dumps({"t": "x", **LAUNCHED}),
    ],
    ids=lambda text: text[:20],
)
def test_other_file_is_rejected(tmp_path: Path, text: str) -> None:
    (tmp_path / "other").write_text(text)

    with pytest.raises(JobError, match="other: not a recording"):
        service_run(tmp_path / "other", "mnist", {})


def test_missing_recording_is_reported(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="No such file"):
        service_run(tmp_path / "none", "mnist", {})
