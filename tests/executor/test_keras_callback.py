"""What the callback makes of the logs of Keras, with a model of the test."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tf_executor.user import reporting

Reports = list[dict[str, Any]]


class Callback:
    """The base class in Keras, which sets these."""

    model: Any
    params: dict[str, Any]

    def __init__(self) -> None:
        self._supports_tf_logs = False

    def set_model(self, model: Any) -> None:
        self.model = model


@pytest.fixture
def keras(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module of the callback, with a stand-in for Keras."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("keras", "tensorflow", "tf_keras")]:
        monkeypatch.delitem(sys.modules, name)
    module = ModuleType("keras.callbacks")
    module.Callback = Callback  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keras", ModuleType("keras"))
    monkeypatch.setitem(sys.modules, "keras.callbacks", module)
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
    monkeypatch.delitem(sys.modules, "tf_executor.user.keras", raising=False)
    yield importlib.import_module("tf_executor.user.keras")
    sys.modules.pop("tf_executor.user.keras", None)


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> Reports:
    """What the callback reports."""
    result: Reports = []
    monkeypatch.setattr(reporting, "report", lambda **values: result.append(values))
    return result


def a_model(replicas: int, workers: bool, module: str = "tf_keras.src.engine.training", **fields: Any) -> Any:
    def train_step() -> None: ...

    train_step.__module__ = module
    extended = SimpleNamespace(_in_multi_worker_mode=lambda: workers)
    strategy = SimpleNamespace(num_replicas_in_sync=replicas, extended=extended)
    values = {"distribute_reduction_method": "auto", **fields}
    return SimpleNamespace(distribute_strategy=strategy, train_step=train_step, **values)


def begun(keras: ModuleType, model: Any, steps: int | None = 10, batch_size: int | None = None) -> Any:
    callback = keras.ProgressCallback(batch_size)
    callback.set_model(model)
    callback.params = {"epochs": 3, "steps": steps}
    callback.on_train_begin()
    return callback


@pytest.mark.parametrize(
    ("model", "loss"),
    [
        (a_model(1, workers=False), 6.0),
        (a_model(3, workers=True), 2.0),
        (a_model(6, workers=True, distribute_reduction_method="sum"), 1.0),
        (a_model(3, workers=True, distribute_reduction_method="first"), 6.0),
        (a_model(2, workers=False), 6.0),
        (a_model(3, workers=True, module="train"), None),
        (a_model(2, workers=False, module="keras.src.models.sharpness_aware_minimization"), None),
        (a_model(2, workers=False, jit_compile=True), None),
        (SimpleNamespace(), 6.0),
    ],
    ids=["one", "workers", "sum", "first", "mirrored", "own step", "own mirrored step", "XLA", "Keras 3"],
)
def test_values_of_batches_are_right_or_missing(keras: ModuleType, reports: Reports, model: Any, loss: Any) -> None:
    """Those of epochs are always right."""
    callback = begun(keras, model)
    callback.on_epoch_begin(0)
    callback.on_train_batch_end(0, {"loss": 6.0, "accuracy": 3.0})
    callback.on_epoch_end(0, {"loss": 2.0, "accuracy": 1.0, "val_loss": 4.0})

    assert (loss, None if loss is None else loss / 2) == (reports[0].get("loss"), reports[0].get("accuracy"))
    assert {"loss": 2.0, "accuracy": 1.0, "val_loss": 4.0}.items() <= reports[1].items()


@pytest.mark.parametrize(("workers", "of"), [(True, "job"), (False, "task")])
def test_examples_of_workers_are_of_the_whole_job(keras: ModuleType, reports: Reports, workers: bool, of: str) -> None:
    """Horovod's processes count their own."""
    callback = begun(keras, a_model(2, workers=workers), batch_size=64)
    callback.on_epoch_begin(1)
    callback.on_train_batch_end(4)
    assert [{"step": 15, "total": 30, "epoch": 2, "epochs": 3, "examples": 15 * 64, "of": of}] == reports


def test_total_is_known_after_an_epoch_of_unknown_length(keras: ModuleType, reports: Reports) -> None:
    callback = begun(keras, a_model(1, workers=False), steps=None)
    for epoch in (0, 1):
        callback.on_epoch_begin(epoch)
        for batch in range(7):
            callback.on_train_batch_end(batch)
        callback.on_epoch_end(epoch)
    seen = [(report["step"], report["total"]) for report in reports]
    assert [*((step, None) for step in range(1, 8)), (7, 21), *((step, 21) for step in range(8, 15)), (14, 21)] == seen


@pytest.mark.parametrize("remote", [True, False])
def test_parameter_servers_have_values_at_ends_of_epochs(keras: ModuleType, reports: Reports, remote: bool) -> None:
    """Keras 2 refuses callbacks that do not accept the logs of a worker."""
    strategy = SimpleNamespace(_should_use_with_coordinator=remote)
    callback = begun(keras, SimpleNamespace(distribute_strategy=strategy))
    callback.on_epoch_begin(0)
    callback.on_train_batch_end(4, object() if remote else {"loss": 0.7})
    callback.on_epoch_end(0, {"loss": 0.5})
    assert remote == callback._supports_tf_logs
    assert [(5, None if remote else 0.7), (10, 0.5)] == [(report["step"], report.get("loss")) for report in reports]
