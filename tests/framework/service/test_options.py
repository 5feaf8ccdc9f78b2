"""Selection of the active options at a start, and preview of updates."""

from functools import partial
from typing import Any

import pytest

from kit.memory_store import MemoryStore
from tf_scheduler.core.state import spec_index
from tf_scheduler.errors import OptionsError
from tf_scheduler.model.effects import TaskLaunched
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord
from tf_scheduler.options.load import merge, resolve
from tf_scheduler.options.spec import to_spec
from tf_scheduler.service.options import OptionsHistory, package_defaults
from tf_scheduler.store.records import writes


def options(service=(), **worker):
    return resolve(
        {"service": {"command": "x", "strategy": "between_graph", **dict(service)}, "worker": {"count": 2, **worker}}
    )


def outcomes(store, *starts):
    """Outcomes of the last start: text, and whether it is a warning."""
    for number, start in enumerate(starts):
        history = OptionsHistory(start, {}, to_spec, clock=partial(float, number))
        history.activate(store)
    return [(outcome.message, outcome.warning) for outcome in history.outcomes]


def launch(store, started) -> None:
    """All of its tasks."""
    state = SchedulerState(to_spec(started))
    for task in state.spec.tasks():
        name, config = task.name, spec_index.config_digest(state.spec, task.name)
        record = TaskRecord(name, f"{name}__1", task.job.kind, task.index, "a", "a", "a:1", 1, (), 5.0, config=config)
        store.apply(list(writes(TaskLaunched(record), state)))


def test_preview_restarts_only_launched_tasks() -> None:
    store, asked = MemoryStore("tensorflow"), {"options": {"service": {"command": "x"}, "worker": {"count": 4}}}
    history = OptionsHistory(options(), {}, to_spec)
    state = history.activate(store)
    assert [] == history.preview(asked, state)["restarted"]

    launch(store, options())
    effects = history.preview(asked, history.activate(store))
    assert ["ps-0", "ps-1", "worker-0", "worker-1"] == [item["task"] for item in effects["restarted"]]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"data": [{"url": "https://h/a"}, {"url": "d/mnist.npz"}]},
            r"d/mnist\.npz: agents need a URL, such as https://files\.example\.com/m",
        ),
        ({"job_url": "train.py"}, r"service\.job_url: train\.py: agents need an address, such as https://"),
    ],
)
def test_paths_are_refused_on_a_cluster(changed: dict[str, Any], message: str) -> None:
    """Agents do not have the files of a laptop."""
    history = OptionsHistory(options(), {}, to_spec)
    state = history.activate(MemoryStore("tensorflow"))

    with pytest.raises(OptionsError, match=message):
        history.preview({"options": {"service": {"command": "x", **changed}}}, state)
    for url in ("https://h/a", "/opt/a"):
        history.preview({"options": {"service": {"command": "x", "job_url": url}}}, state)


def test_new_target_is_reported_with_its_effects() -> None:
    """Not the first configuration, and not the same options again."""
    store = MemoryStore("tensorflow")
    assert [] == outcomes(store, options(), options())
    launch(store, options())

    ((message, warning),) = outcomes(store, options(count=4))

    assert message.startswith("new target configuration ")
    assert ": worker.count 2 -> 4; ps-0, ps-1, worker-0, worker-1 restart: the size of the cluster" in message
    assert message.endswith("; worker-2, worker-3 are added")
    assert not warning


def test_secret_in_new_target_is_redacted() -> None:
    ((message, _),) = outcomes(MemoryStore("tensorflow"), options(), options(environment={"API_KEY": "hush"}))

    assert "worker.environment" in message
    assert "hush" not in message


def test_rejected_options_are_reported_at_each_start() -> None:
    ((message, warning),) = outcomes(
        MemoryStore("tensorflow"), options(), options({"role": "another"}), options({"role": "another"})
    )

    assert message.startswith("new options rejected: service.role: cannot change")
    assert warning


def test_strategy_of_example_is_kept_by_update() -> None:
    """A service that was installed without a program gets one."""
    store, environment = MemoryStore("tensorflow"), {"EXAMPLES_URI": "h"}
    OptionsHistory(resolve({}, package_defaults({}, environment)), environment, to_spec).activate(store)
    update = {"service": {"command": "x"}, "parameter_server": {"count": 0}, "worker": {"count": 1}}

    state = OptionsHistory(resolve(update), environment, to_spec, document=update).activate(store)

    assert ("between_graph", ()) == (state.spec.strategy.value, state.process.rejected)


def test_omitted_strategy_is_kept_by_update() -> None:
    """It cannot change, so that another guess would make the update fail."""
    document = {"service": {"command": "x"}, "worker": {"count": 1}}
    old = {"service": {"strategy": "between_graph"}, "parameter_server": {"count": 2}}
    for stored, strategy in (({}, "independent"), (old, "between_graph")):
        store = MemoryStore("tensorflow")
        outcomes(store, resolve(merge(document, stored)))
        more = {**document, "worker": {"count": 4}}

        history = OptionsHistory(resolve(more), {}, to_spec, document=more)
        state = history.activate(store)

        assert strategy == state.spec.strategy.value
        assert (4, []) == (history.options["worker"]["count"], [item for item in history.outcomes if item.warning])


def test_omitted_count_is_kept_and_explicit_one_changes() -> None:
    """The preview agrees with the start."""
    store, document = MemoryStore("tensorflow"), {"service": {"command": "x", "strategy": "between_graph"}}
    outcomes(store, resolve({**document, "parameter_server": {"count": 1}}))

    for update, count in ((document, 1), ({**document, "parameter_server": {"count": 3}}, 3)):
        history = OptionsHistory(resolve(update), {}, to_spec, document=update)
        changed = history.preview({"options": update}, history.activate(store))["changed"]
        assert (count, []) == (history.options["parameter_server"]["count"], changed)


PACKAGE = {
    "EXECUTOR_URI": "http://h/e.pyz",
    "EXECUTOR_URI_SHA256": "e",
    "EXAMPLES_URI": "h",
    "EXAMPLES_URI_SHA256": "x",
}


def test_digests_of_package_belong_to_its_own_files() -> None:
    """The bundle of executor.url has another digest than that of the package."""
    defaults = package_defaults({}, PACKAGE)
    assert {"url": "http://h/e.pyz", "sha256": "e"} == defaults["executor"]
    assert "x" == defaults["service"]["job_sha256"]

    other = package_defaults({"executor": {"url": "http://h/mine.pyz"}, "service": {"job_url": "a"}}, PACKAGE)
    assert {"executor": {"url": "http://h/e.pyz"}} == other


def test_digest_of_program_restarts_tasks() -> None:
    """In upper and lower case it is the same."""
    url = {"job_url": "http://h/a.zip", "data": "http://h/b.tgz"}
    digest = "A" * 64
    plain, lower, upper = (
        to_spec(resolve({"service": {"command": "x", "strategy": "between_graph", **url, **more}}))
        for more in ({}, {"job_sha256": digest.lower()}, {"job_sha256": digest})
    )
    configs = [spec_index.config_digest(spec, "worker-0") for spec in (plain, lower, upper)]
    assert configs[0] != configs[1] == configs[2]


def test_options_of_running_tasks_are_known_after_an_update() -> None:
    store, first = MemoryStore("tensorflow"), options(cpus=2)
    assert () == OptionsHistory(first, {}, to_spec).activate(store).spec.earlier
    launch(store, first)
    (earlier,) = OptionsHistory(options(cpus=3), {}, to_spec).activate(store).spec.earlier
    assert earlier.jobs == to_spec(first).jobs
