"""Return and check the task's GPUs, and return its log folder. Python 3.6."""

import os
import sys
from pathlib import Path
from typing import Any

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


def check_gpus(expected: int) -> int:
    """Check that TensorFlow sees the task's GPUs; return the exit code.

    Called before the program starts. 0 without TensorFlow, which the program may not use.
    """
    try:
        import tensorflow
    except ImportError as error:
        sys.stderr.write(f"GPU check skipped: cannot import TensorFlow: {error}\n")
        return 0
    seen = count_gpus(tensorflow)
    if seen == expected:
        return 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    numbers = f"TensorFlow {tensorflow.__version__} sees {seen} GPUs, expected {expected}"
    sys.stderr.write(f"{numbers} (CUDA_VISIBLE_DEVICES={visible!r}); {_hint(tensorflow)}\n")
    return 1


def count_gpus(tensorflow: Any) -> int:
    """Return the number of GPUs that TensorFlow 1.14 or later sees."""
    config = tensorflow.config
    listed = getattr(config, "list_physical_devices", None) or config.experimental.list_physical_devices
    return len(listed("GPU"))


def _hint(tensorflow: Any) -> str:
    """Return the likely reason."""
    if not tensorflow.test.is_built_with_cuda():
        return "this TensorFlow is built without CUDA"
    return "see the messages of CUDA above; set the option gpu_check to false to skip this check"
