"""Number and check of the task's GPUs, and the task's log folder. Python 3.6."""

import importlib
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

#: Environment variable with the number of the task's GPUs, set by the executor.
GPU_COUNT_VARIABLE = "TF_EXECUTOR_GPUS"


def get_num_gpus() -> int:
    """Return the number of GPUs of this task, 0 outside a task.

    Imports nothing and initialises no driver. So a program may call it before or after it configures TensorFlow.
    """
    return int(os.environ.get(GPU_COUNT_VARIABLE, "0"))


def logdir() -> str:
    """Return the log and checkpoint folder or URL; create the folder if necessary.

    The option checkpoint_dir has precedence. Outside a task the folder is `logs` in the working directory.
    """
    folder = os.environ.get("LOG_DIR") or str(Path("logs").absolute())
    if "://" not in folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
    return folder


_TITLES = {"tensorflow": "TensorFlow", "torch": "PyTorch"}


def check_gpus(expected: int, library: str) -> int:
    """Check that TensorFlow or PyTorch sees the task's GPUs; return the exit code.

    The executor calls this before the program starts. `library`: the library to import first, `tensorflow` or `torch`.
    Return 0 if neither can be imported, because the program may use neither.
    """
    for name in sorted(_TITLES, key=lambda other: other != library):
        with suppress(ImportError):
            return _compare(importlib.import_module(name), _TITLES[name], expected)
    sys.stderr.write("GPU check skipped: cannot import TensorFlow or PyTorch\n")
    return 0


def _compare(framework: Any, name: str, expected: int) -> int:
    seen = count_gpus(framework)
    if seen == expected:
        return 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    numbers = f"{name} {framework.__version__} sees {seen} GPUs, expected {expected}"
    sys.stderr.write(f"{numbers} (CUDA_VISIBLE_DEVICES={visible!r}); {_hint(framework, name)}\n")
    return 1


def count_gpus(framework: Any) -> int:
    """Return the number of GPUs that TensorFlow 1.14 or later, or PyTorch, sees."""
    if framework.__name__ == "torch":
        return int(framework.cuda.device_count())
    config = framework.config
    listed = getattr(config, "list_physical_devices", None) or config.experimental.list_physical_devices
    return len(listed("GPU"))


def _hint(framework: Any, name: str) -> str:
    """Return the likely reason for a wrong number of GPUs."""
    if not (framework.version.cuda if name == "PyTorch" else framework.test.is_built_with_cuda()):
        return f"this {name} is built without CUDA"
    return "see the messages of CUDA above; set the option gpu_check to false to skip this check"
