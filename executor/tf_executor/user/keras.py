"""Keras callback that reports progress. Python 3.6, any Keras.

from tf_executor.keras import ProgressCallback
model.fit(..., callbacks=[ProgressCallback(batch_size=32)])
"""

import os
import sys
from typing import Any, Dict, Optional

from . import reporting


def _base() -> Any:
    """Return the Callback class of the Keras that the program imports."""
    names = ["keras", "tensorflow.keras"]
    if "tf_keras" in sys.modules or os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true"):
        names = ["tf_keras", "tensorflow.keras", "keras"]
    elif "tensorflow" in sys.modules:
        names = ["tensorflow.keras", "keras"]
    for name in names:
        try:
            module = __import__(name + ".callbacks", fromlist=["Callback"])
        except ImportError:
            continue
        return module.Callback
    raise ImportError("ProgressCallback requires Keras; install tf_keras, tensorflow or keras")


_Callback = _base()


class ProgressCallback(_Callback):  # type: ignore[misc,valid-type]
    """Report steps, epochs, all logs and, with `batch_size`, the number of examples.

    Steps are counted from the start of training, also with `fit(initial_epoch=...)`. Values that Keras has not
    computed yet are skipped, so that no step waits for them.
    """

    #: Keras 3 need not wait for a step before calling this (`CallbackList._configure_async_dispatch`).
    async_safe = True

    def __init__(self, batch_size: Optional[int] = None) -> None:
        """`batch_size`: examples per step over all replicas."""
        super().__init__()
        self._batch_size = batch_size
        self._steps = 0
        self._steps_before_epoch = 0
        self._per_epoch = 0
        self._epoch = 0
        self._divisor = 1  # type: Optional[int]

    def set_model(self, model: Any) -> None:
        """Accept remote values; otherwise Keras 2 refuses ParameterServerStrategy."""
        super().set_model(model)
        strategy = getattr(model, "distribute_strategy", None)
        self._supports_tf_logs = bool(getattr(strategy, "_should_use_with_coordinator", False))

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:  # noqa: ARG002
        """Note how Keras combines the values of the replicas."""
        self._divisor = _divisor(self.model)
        self._per_epoch = self._parameter("steps")

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:  # noqa: ARG002
        """Count the steps of earlier epochs, if their number is known."""
        self._epoch = epoch + 1
        self._steps = self._steps_before_epoch = epoch * self._per_epoch if self._per_epoch else self._steps

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Report a step. `batch` starts at 0 in each epoch; Keras may skip numbers."""
        self._steps = self._steps_before_epoch + batch + 1
        self._report({} if self._divisor is None else _ready(logs, self._divisor))

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:  # noqa: ARG002
        """Report the epoch's values, which Keras does not add up."""
        self._per_epoch = self._per_epoch or self._steps - self._steps_before_epoch
        self._steps = max(self._steps, self._steps_before_epoch + self._per_epoch)
        self._report(_ready(logs, 1))

    def _parameter(self, name: str) -> int:
        value = (self.params or {}).get(name)
        return value if isinstance(value, int) else 0

    def _report(self, values: Dict[str, Any]) -> None:
        epochs = self._parameter("epochs")
        if self._batch_size:
            # With MultiWorkerMirroredStrategy, each worker reports the examples of all workers.
            values["examples"] = self._steps * self._batch_size
            values["of"] = "job" if _is_multi_worker(self.model) else "task"
        total = self._per_epoch * epochs or None
        values.update(step=self._steps, total=total, epoch=self._epoch, epochs=epochs or None)
        reporting.report(**values)


def _is_multi_worker(model: Any) -> bool:
    extended = getattr(getattr(model, "distribute_strategy", None), "extended", None)
    return bool(getattr(extended, "_in_multi_worker_mode", bool)())


def _divisor(model: Any) -> Optional[int]:
    """Return the divisor for the values of a batch; None if the values mean nothing.

    Keras 2 adds the values up over the workers of MultiWorkerMirroredStrategy, although each worker already has the
    value of all replicas (`reduce_per_replica`). If XLA compiles the step, or if the model has its own `train_step`,
    Keras 2 may also add up the values of other replicas. Keras 3 returns the mean.
    """
    replicas = getattr(getattr(model, "distribute_strategy", None), "num_replicas_in_sync", 1)
    method = getattr(model, "distribute_reduction_method", "first")
    if replicas == 1 or method not in ("auto", "sum"):
        return 1
    if getattr(model, "jit_compile", False) or not model.train_step.__module__.endswith(".engine.training"):
        return None
    return int(replicas) if _is_multi_worker(model) else 1


def _ready(logs: Any, divisor: int) -> Dict[str, float]:
    """Return the numbers in host memory; a conversion of others could wait for a GPU.

    With ParameterServerStrategy, the logs of a batch are one value on a worker, and the result is empty.
    """
    items = logs.items() if isinstance(logs, dict) else ()
    numbers = {name: value for name, value in items if _is_ready(value)}
    return {name: float(value) / divisor for name, value in numbers.items()}


def _is_ready(value: Any) -> bool:
    return isinstance(value, (int, float)) or (type(value).__module__ == "numpy" and getattr(value, "size", 0) == 1)
