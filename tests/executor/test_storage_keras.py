"""Carried checkpoints of a real Keras."""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from kit.waiting import wait_until
from own_runtimes import tensorflow_2_15

pytestmark = pytest.mark.usefixtures("real_versions")

#: Trains five epochs; in an epoch it gets SIGKILL, some time after the last backup.
TRAIN = """
import os, time
import keras, numpy
print("Keras", keras.__version__)
folder = os.environ["CHECKPOINT_DIR"]
class Killed(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        print("epoch", epoch, flush=True)
        if epoch == int(os.environ["KILLED_IN"]):
            while not os.path.exists(os.environ["STORED"]):
                time.sleep(0.1)
            os.kill(os.getpid(), 9)
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
backup = keras.callbacks.BackupAndRestore(folder + "/backup")
model.fit(numpy.ones((8, 2)), numpy.ones(8), epochs=5, verbose=0, callbacks=[backup, Killed()])
model.save(folder + "/model.keras")
model.export(folder + "/exported")
"""


def launch(executor: Any, tmp_path: Path, python: str, killed_in: int) -> None:
    url = f"file://{tmp_path}/bucket"
    settings = {"url": url, "mode": "carried", "role": "writer", "every": 0.5, "keep": 2, "options": {}}
    environment = {
        "CHECKPOINT_DIR": url,
        "CODE": TRAIN,
        "KILLED_IN": str(killed_in),
        "STORED": str(tmp_path / "stored"),
        "KERAS_BACKEND": "tensorflow",
    }
    executor.launch('exec python -c "$CODE"', storage=settings, environment=environment, python=python)


@pytest.mark.parametrize("version", ["2.15", "2.21"])
def test_model_fit_resumes_from_stored_backup(start_executor: Any, tmp_path: Path, version: str) -> None:
    """Keras 3 writes weights and epoch to two files, in place; Keras 2 a checkpoint."""
    python = str(tensorflow_2_15(tmp_path / "2.15") / "python") if version == "2.15" else sys.executable
    first, second = start_executor("first"), start_executor("second")
    launch(first, tmp_path, python, killed_in=3)
    first.states("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING")
    wait_until(lambda: "storage: stored" in first.output().partition("epoch 3")[2])
    (tmp_path / "stored").touch()
    assert "TASK_FAILED" == first.end("TASK_RUNNING")["state"]

    launch(second, tmp_path, python, killed_in=99)
    second.states("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING", "TASK_RUNNING", "TASK_FINISHED")
    assert ["3", "4"] == re.findall(r"^epoch (\d)$", second.output(), re.MULTILINE)
    assert f"Keras {'2.15' if version == '2.15' else '3'}." in second.output()
    assert zipfile.is_zipfile(tmp_path / "bucket" / "model.keras")
    assert (tmp_path / "bucket" / "exported" / "saved_model.pb").exists()
