"""For the user's program: the GPUs of its task. Standard library only, Python 3.6."""

import os

#: Set by the executor: how many GPUs the task has.
GPUS = "TF_EXECUTOR_GPUS"


def get_num_gpus() -> int:
    """How many GPUs this task has; 0 outside a task.

    It imports nothing and initialises no driver, so it can be called before TensorFlow is configured.
    """
    return int(os.environ.get(GPUS, "0"))
