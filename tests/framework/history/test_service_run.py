"""The recording of an installed service becomes a run."""

import json

import pytest

from tf_scheduler.errors import JobError
from tf_scheduler.history.model import from_json, to_json
from tf_scheduler.history.record import service_run
from tf_scheduler.report.page import render_page

LAUNCHED = {"launched": "worker-0__a", "task": "worker-0", "generation": 1, "agent": "agent-1", "address": "a:1"}
LINES = [
    {"t": 1000.0, **LAUNCHED},
    {"t": 1002.0, "status": "worker-0__a", "state": "running"},
    {"t": 1003.5, "progress": "worker-0", "step": 3, "loss": 0.5, "speed": None, "unit": "steps"},
    {"t": 1010.0, "status": "worker-0__a", "state": "finished", "ended": True},
    {"t": 1010.5, "result": "succeeded", "reason": "worker-0 has finished"},
]


def recorded(path, lines):
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_a_run_has_its_times_its_tasks_and_its_result(tmp_path):
    """It can be stored and drawn as any other."""
    found = service_run(recorded(tmp_path / "r", LINES), "dev/mnist", {"service": {"name": "dev/mnist"}})

    assert found.id.startswith("dev-mnist-19700101-001640-")
    assert ("succeeded", "worker-0 has finished", 1000.0, 10.5) == (
        found.state,
        found.reason,
        found.submitted,
        found.seconds,
    )
    assert (3, 3.5, "finished") == (found.last.step, found.first_step, found.launches[0].state)
    assert found == from_json(json.loads(json.dumps(to_json(found))))
    assert "worker-0" in render_page(found)


def test_a_recording_that_has_grown_is_the_same_run(tmp_path):
    """Taken while the service ran, the last line cut off; and at its end."""
    early = recorded(tmp_path / "early", LINES[:2])
    early.write_text(early.read_text() + '{"t": 10')

    before, after = (service_run(path, "mnist", {}) for path in (early, recorded(tmp_path / "late", LINES)))

    assert before.id == after.id
    assert ("running", "succeeded") == (before.state, after.state)


@pytest.mark.parametrize(
    "text",
    [
        *("", "no recording\n", '{"a": 1}\n[]\n"t"\n', "[" * 100_000, "9" * 90_000),
        *('{"launched": []}', '{"launched": "a"}', '{"progress": 1}', '{"told": 1}'),
        json.dumps({"t": 1e300, **LAUNCHED}),
        json.dumps({"t": "x", **LAUNCHED}),
    ],
    ids=lambda text: text[:20],
)
def test_another_file_is_refused(tmp_path, text):
    """With its name."""
    (tmp_path / "other").write_text(text)

    with pytest.raises(JobError, match="other is no recording"):
        service_run(tmp_path / "other", "mnist", {})


def test_a_file_that_is_not_there_is_named(tmp_path):
    """As any other."""
    with pytest.raises(JobError, match="No such file"):
        service_run(tmp_path / "none", "mnist", {})
