"""Return the task's GPU count and log folder to user programs. Python 3.6."""

import os
from pathlib import Path

#: Environment variable with the number of the task's GPUs, set by the executor.
GPU_COUNT_VARIABLE = "TF_EXECUTOR_GPUS"


def get_num_gpus() -> int:
    """Return the number of GPUs of this task, 0 outside a task.

    Imports nothing and initialises no driver, so call it before or after configuring TensorFlow.
    """
    return int(os.environ.get(GPU_COUNT_VARIABLE, "0"))


def logdir() -> str:
    """Return the log and checkpoint folder or URL; create the folder if necessary.

    The option checkpoint_dir wins. Outside a task the folder is `logs` in the working directory.
    """
    folder = os.environ.get("LOG_DIR") or str(Path("logs").absolute())
    if "://" not in folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
    return folder
