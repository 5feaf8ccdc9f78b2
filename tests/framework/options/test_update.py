"""Preview of an update: refusals, restarts, documented effect of each option."""

import copy
from typing import Any

import pytest

from builders import a_running_state
from tf_scheduler.model.redaction import MASK
from tf_scheduler.options.load import resolve
from tf_scheduler.options.schema.document import OPTIONS
from tf_scheduler.options.schema.fields import (
    Boolean,
    Environment,
    IntegerList,
    OnUpdate,
    RecordList,
    String,
    parse_ulimits,
)
from tf_scheduler.options.schema.values import parse_constraints
from tf_scheduler.options.spec import to_spec
from tf_scheduler.options.update import difference

#: Every job has tasks, so that every option affects one.
ALL_JOBS = {
    "service": {
        "command": "",
        "job_name": "mnist",
        "job_url": "http://host/mnist.zip",
        "data": "http://host/data.csv",
        "use_tensorboard": True,
    },
    "chief": {"count": 1},
    "parameter_server": {"count": 1},
    "worker": {"count": 2},
    "gpu_worker": {"count": 1},
    "evaluator": {"count": 1},
    "data_service": {"workers": 1},
}
#: Other values of options that do not accept "changed".
CHANGED = {
    "service.name": "changed",
    "service.job_context": '{"rate": 1}',
    "storage.options": '{"anon": true}',
    "secrets": ({"source": "a", "env": "A", "file": "", "jobs": "", "reload": ""},),
    "volumes": ({"host_path": "/a", "container_path": "a", "mode": "RO", "jobs": ""},),
    "service.security.kerberos.kdc.port": 88,
    "plans.phases": (
        {"plan": "retune", "phase": "a", "job": "worker", "strategy": "serial", "tasks": "", "after": ""},
    ),
}
USED = [option for option in OPTIONS if "obsolete" not in option.field.metadata]


def options(strategy="between_graph", **sections):
    """Return resolved options: `ALL_JOBS` and these."""
    document: dict[str, Any] = copy.deepcopy(ALL_JOBS)
    for name, section in {**sections, "service": {"strategy": strategy, **sections.get("service", {})}}.items():
        document.setdefault(name, {}).update(section)
    if strategy == "multi_worker_mirrored":
        document["parameter_server"]["count"] = 0
    return resolve(document)


def changed(option, before):
    """Return the options with another value of one option."""
    after = copy.deepcopy(before)
    section = after
    for name in option.path[:-1]:
        section = section[name]
    section[option.path[-1]] = (
        CHANGED[str(option)] if str(option) in CHANGED else another(option.field, option.value(before))
    )
    return after


def another(field, value):
    if isinstance(field, Boolean):
        return not value
    if isinstance(field, String):
        special = {parse_constraints: "rack:MAX_PER:1", parse_ulimits: "core=0"}.get(field.parse, "changed")
        return next((choice for choice in field.choices if choice != value), special)
    if isinstance(field, Environment):
        return {"CHANGED": "1"}
    if isinstance(field, (IntegerList, RecordList)):
        return (*value, 1)
    return value + 1 if value < field.maximum else value - 1


@pytest.mark.parametrize("option", [option for option in USED if option.on_update is not OnUpdate.SCALE], ids=str)
def test_documented_update_effect_is_true(option) -> None:
    """Refused, with a restart, or without one."""
    preview = difference(options(), changed(option, options()))

    assert [str(option)] == [item.path for item in preview.changed]
    assert (option.on_update is OnUpdate.REJECTED) == (str(option) in [problem.path for problem in preview.refused])
    assert (option.on_update is OnUpdate.RESTART) == bool(preview.restarted)


@pytest.mark.parametrize("option", [option for option in USED if option.on_update is OnUpdate.SCALE], ids=str)
def test_count_adds_and_removes_tasks(option) -> None:
    preview = difference(options(), changed(option, options()))

    assert ((), True) == (preview.refused, len(preview.added) + len(preview.removed) == 1)


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.on_update is OnUpdate.REJECTED], ids=str)
def test_refusal_has_option_values_and_reason(option) -> None:
    """Also for options that are not in use."""
    old = options(service={"service_account": "a"} if str(option) == "service.principal" else {})
    (problem,) = difference(old, changed(option, old)).refused

    assert str(option) == problem.path
    assert problem.message.startswith("cannot change from ")


def test_equal_options_have_no_difference() -> None:
    """In any notation."""
    preview = difference(options(), options(worker={"count": 2.0}, service={"environment": []}))

    assert ((), (), (), (), ()) == (preview.changed, preview.refused, preview.restarted, preview.added, preview.removed)


WHOLE = "its command, its environment and its resources changed"
RESIZED = "its resources changed"


@pytest.mark.parametrize(
    ("strategy", "change", "reasons"),
    [
        (
            "between_graph",
            {"worker": {"command": "python other.py", "environment": {"A": "1"}, "mem": 64}},
            {"worker-0": WHOLE, "worker-1": WHOLE},
        ),
        # A task is identified by its index in the job.
        ("between_graph", {"worker": {"count": 1}, "gpu_worker": {"count": 2}}, {"worker-1": RESIZED}),
        # The chief restarts with a ps; between-graph workers wait instead.
        ("between_graph", {"parameter_server": {"mem": 64}}, {"ps-0": RESIZED}),
        ("parameter_server", {"parameter_server": {"mem": 64}}, {"ps-0": RESIZED, "chief-0": "ps-0 restarts"}),
        # All mirrored tasks restart together, except the evaluator.
        (
            "multi_worker_mirrored",
            {"chief": {"command": "x"}},
            {"chief-0": "its command changed"}
            | dict.fromkeys(("worker-0", "worker-1", "worker-2"), "chief-0 restarts"),
        ),
    ],
)
def test_only_tasks_of_changed_job_restart(strategy: str, change, reasons: dict[str, str]) -> None:
    """And those that depend on them, with the reason."""
    preview = difference(options(strategy), options(strategy, **change))

    assert ((), ()) == (preview.added, preview.removed)
    assert reasons == {item.task: item.reason for item in preview.restarted}


@pytest.mark.parametrize(
    ("strategy", "tasks"),
    [
        ("parameter_server", {"chief-0"}),
        ("multi_worker_mirrored", {"chief-0", "worker-0", "worker-1", "worker-2"}),
        ("between_graph", {"chief-0", "worker-0", "worker-1", "worker-2", "ps-0"}),
    ],
)
def test_added_worker_restarts_dependents(strategy: str, tasks) -> None:
    """The new worker is added, not restarted."""
    preview = difference(options(strategy), options(strategy, gpu_worker={"count": 2}))

    assert ("worker-3",) == preview.added
    assert tasks == {restart.task for restart in preview.restarted}
    assert {"the size of the cluster changed"} == {restart.reason for restart in preview.restarted}


@pytest.mark.parametrize(("job", "restarted"), [("worker", set()), ("parameter_server", {"chief-0"})])
def test_live_chief_restarts_for_other_parameter_servers(job: str, restarted: set[str]) -> None:
    """Workers alone join and leave: the chief has variables on every parameter server."""
    elastic, none = {"mode": "live", "min": 1, "max": 9}, {"gpu_worker": {"count": 0}}
    old, new = (
        options("parameter_server", **none, **{"worker": {"count": 2, "elastic": elastic}, **more})
        for more in ({}, {job: {"count": 4, "elastic": elastic} if job == "worker" else {"count": 4}})
    )

    assert restarted == {restart.task for restart in difference(old, new).restarted}
    assert restarted == {restart.task for restart in difference(new, old).restarted}


@pytest.mark.parametrize(("command", "waits"), [("python train.py", True), ("python other.py", False)])
def test_resize_alone_waits_for_the_next_checkpoint(command: str, waits: bool) -> None:
    """No step is lost then, unless another option changes, too."""
    service = {"strategy": "multi_worker_mirrored", "command": "python train.py", "checkpoint_dir": "/data"}
    old = resolve({"service": service, "worker": {"count": 2}, "parameter_server": {"count": 0}})
    new = resolve(
        {"service": {**service, "command": command}, "worker": {"count": 3}, "parameter_server": {"count": 0}}
    )
    state = a_running_state(to_spec(old))

    reasons = {item.reason for item in difference(old, new, state).restarted}

    assert {waits} == {reason.endswith("at the next checkpoint") for reason in reasons}


def test_difference_masks_secrets() -> None:
    """Old and new values."""
    old = options(service={"gcs_key": "old-key", "environment": {"API_TOKEN": "t-1", "A": "http://u:pw@host/"}})
    new = options(service={"gcs_key": "new-key", "environment": {"API_TOKEN": "t-2", "A": "http://u:pw2@host/"}})

    changed = str(difference(old, new).changed)

    assert [] == [secret for secret in ("old-key", "new-key", "t-1", "t-2", "pw") if secret in changed]
    assert MASK in changed


def test_zookeeper_parameters_of_state_can_change() -> None:
    """But neither the address nor the file."""
    here = "zk://a:2181,b:2181/frameworks"

    def problems(before, after):
        documents = [options(scheduler={"state": state}) for state in (before, after)]
        return [problem.path for problem in difference(*documents).refused]

    assert [] == problems(here, f"{here}?session_timeout=30")
    assert ["scheduler.state"] == problems(here, "zk://a:2181,b:2181/others?session_timeout=30")
    assert ["scheduler.state"] == problems("file:///state.db?1", "file:///state.db?2")
