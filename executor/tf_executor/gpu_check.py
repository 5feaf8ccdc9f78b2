"""Runs in the task's Python before the program: does TensorFlow see the GPUs? Standard library only, Python 3.6.

`python -m tf_executor.gpu_check 2` ends with 1 and a sentence on stderr when TensorFlow sees another number.
"""

import os
import sys
from typing import Any


def main(wanted: int) -> int:
    """Return the exit code. Where TensorFlow cannot be imported nothing is checked: the program may use another."""
    try:
        import tensorflow
    except ImportError as error:
        sys.stderr.write(f"GPU check: TensorFlow cannot be imported here, nothing is checked: {error}\n")
        return 0
    seen = count(tensorflow)
    if seen == wanted:
        return 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    numbers = f"TensorFlow {tensorflow.__version__} sees {seen} GPUs, the task has {wanted}"
    sys.stderr.write(f"{numbers} (CUDA_VISIBLE_DEVICES={visible!r}); {hint(tensorflow)}\n")
    return 1


def count(tensorflow: Any) -> int:
    """Of TensorFlow 1.14 and later."""
    config = tensorflow.config
    listed = getattr(config, "list_physical_devices", None) or config.experimental.list_physical_devices
    return len(listed("GPU"))


def hint(tensorflow: Any) -> str:
    """The likely reason."""
    if not tensorflow.test.is_built_with_cuda():
        return "this TensorFlow is built without CUDA"
    return "see the lines above for what CUDA says; the option gpu_check switches this check off"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
