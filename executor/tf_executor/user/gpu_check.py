"""Check that TensorFlow sees the task's GPUs, before the program starts.

`python -m tf_executor.gpu_check 2` exits with 1 and a message if TensorFlow sees another number. Python 3.6.
"""

import os
import sys
from typing import Any


def main(expected: int) -> int:
    """Return the exit code; 0 without TensorFlow, which the program may not use."""
    try:
        import tensorflow
    except ImportError as error:
        sys.stderr.write(f"GPU check skipped: cannot import TensorFlow: {error}\n")
        return 0
    seen = count(tensorflow)
    if seen == expected:
        return 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    numbers = f"TensorFlow {tensorflow.__version__} sees {seen} GPUs, expected {expected}"
    sys.stderr.write(f"{numbers} (CUDA_VISIBLE_DEVICES={visible!r}); {hint(tensorflow)}\n")
    return 1


def count(tensorflow: Any) -> int:
    """Return the number of GPUs that TensorFlow 1.14 or later sees."""
    config = tensorflow.config
    listed = getattr(config, "list_physical_devices", None) or config.experimental.list_physical_devices
    return len(listed("GPU"))


def hint(tensorflow: Any) -> str:
    """Return the likely reason."""
    if not tensorflow.test.is_built_with_cuda():
        return "this TensorFlow is built without CUDA"
    return "see the messages of CUDA above; set the option gpu_check to false to skip this check"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
