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
    """Report steps, the loss and, with `batch_size`, the number of examples.

    Steps are counted from the start of training, also with `fit(initial_epoch=...)`. Values that Keras has not
    computed yet are skipped, so that no step waits for them.
    """

    #: Allow values that are still on the accelerator; Keras 2 then also allows batch hooks with
    #: ParameterServerStrategy (`Callback._supports_tf_logs`).
    _supports_tf_logs = True
    #: Keras 3 need not wait for a step before calling this (`CallbackList._configure_async_dispatch`).
    async_safe = True

    def __init__(self, batch_size: Optional[int] = None) -> None:
        """`batch_size`: examples per step over all replicas."""
        super().__init__()
        self._batch_size = batch_size
        self._steps = 0
        self._steps_before_epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:  # noqa: ARG002
        """Count the steps of earlier epochs, if their number is known."""
        per_epoch = self._parameter("steps")
        self._steps = self._steps_before_epoch = epoch * per_epoch if per_epoch else self._steps

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Report a step. `batch` starts at 0 in each epoch; Keras may skip numbers."""
        self._steps = self._steps_before_epoch + batch + 1
        self._report(_ready((logs or {}).get("loss")))

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:  # noqa: ARG002
        """Report the epoch's loss."""
        self._steps = max(self._steps, self._steps_before_epoch + self._parameter("steps"))
        self._report(_ready((logs or {}).get("loss")))

    def _parameter(self, name: str) -> int:
        value = (self.params or {}).get(name)
        return value if isinstance(value, int) else 0

    def _report(self, loss: Optional[float]) -> None:
        total = self._parameter("steps") * self._parameter("epochs")
        examples = self._steps * self._batch_size if self._batch_size else None
        reporting.report(step=self._steps, total=total or None, loss=loss, examples=examples)


def _ready(value: Any) -> Optional[float]:
    """Return a host number, or None: converting could wait for the accelerator."""
    return float(value) if isinstance(value, (int, float)) or type(value).__module__ == "numpy" else None
