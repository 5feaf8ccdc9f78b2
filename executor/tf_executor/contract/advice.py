"""Hints on errors of programs: known messages, missing commands, Keras 3."""

from __future__ import annotations

import re
import signal
from difflib import get_close_matches
from typing import Iterable, Mapping

from .strategies import Strategy

#: Variable that makes tf.keras Keras 2, the package tf_keras; and the values that TensorFlow accepts.
KERAS_2, KERAS_2_VALUES = "TF_USE_LEGACY_KERAS", ("1", "true", "True")
_SET_KERAS_2 = f'add "environment": {{"{KERAS_2}": "1"}} to "service" (--set service.environment.{KERAS_2}=1)'

#: Hint on an error of a server whose port is in use, if no other process has a port of the task.
PORT_HINT = "the program chooses a port itself, or opens one twice; its own port is in TF_CONFIG and TASK_PORT"
#: Text of an error -> what to do. The first entry counts.
_HINTS = (
    (r"No module named 'tensorflow\.(examples|contrib)|module 'tensorflow[\w.]*' has no attribute '(app|flags|Session|"
     r"placeholder|contrib|ConfigProto|get_variable)'",
     "the program is written for TensorFlow 1: `dcos-tensorflow runtime create tf1.15 --tensorflow 1.15 --python 3.7` "
     "installs it, and service.python `runtime:tf1.15` uses it"),
    (r"[Aa]ddress already in use|Could not start gRPC server", PORT_HINT),
    (r"ProcessGroupNCCL is only supported with GPUs|doesn't have NCCL built in",
     "NCCL needs GPUs: without GPUs, call init_process_group with the backend gloo"),
    (r"Found no NVIDIA driver|Torch not compiled with CUDA",
     'the task has no GPU: set gpus, or let the program use torch.device("cpu")'),
    (r"Collective ops must be configured at program startup",
     "create the strategy before anything else of TensorFlow, such as a dataset or a random seed"),
    (r"\bNCCL\b.*(error|failure)|nccl\w*Error",
     "set NCCL_DEBUG to INFO in the environment; if hosts have several networks, NCCL_SOCKET_IFNAME selects one"),
    (r"Collectives are not yet implemented for CPU",
     "compile the model without jit_compile=True: XLA has no collectives for CPUs"),
    (r"URL fetch failure on|Name or service not known|Temporary failure in name resolution",
     "the task cannot reach this address: give the file in service.data, data of Keras with the path "
     ".keras/datasets/NAME"),
    (r"A KerasTensor cannot be used as input|has no attribute 'reset_states'|not recognized: \{'lr':|"
     r"keras\.optimizers\.legacy` is not supported|filepath provided must end in `\.keras`",
     f"the program is written for Keras 2: {_SET_KERAS_2}, which needs the package tf_keras; a program that imports "
     "keras itself imports tf_keras in its place"),
    (r"_temp; No such file or directory\s+\[\[\{\{node SaveV2|did not exist.*\s+\[\[\{\{node MergeV2Checkpoints|"
     r"Failed to find any matching files for .*\s+\[\[\{\{node RestoreV2.*\s.*/job:ps/",
     "each ps reads and writes its part of a checkpoint: set service.checkpoint_dir to a folder that chief and ps "
     "share, or save and restore with tf.train.CheckpointOptions(experimental_io_device='/job:chief/replica:0/task:0/"
     "device:CPU:0')"),
    (r"No space left on device|Disk quota exceeded", "a disk is full: free space, or write less to the sandbox"),
    (r"\bMemoryError\b|bad_alloc|Cannot allocate memory|Unable to allocate|OOM when allocating|CUDA out of memory",
     "memory is exhausted: use smaller batches or a larger `mem`, or, on GPUs, a GPU with more memory"),
)  # fmt: skip
_WHERE = "; PYTHONFAULTHANDLER=1 in the environment prints the line"
#: Signal of a crash -> what it means.
CRASH_HINTS: Mapping[int, str] = {
    signal.SIGILL: "the program contains instructions that this processor lacks: use a build for older processors, or "
    "an agent with a newer one",
    signal.SIGABRT: f"a library found an error and aborted the program{_WHERE}",
    signal.SIGSEGV: f"a library accessed memory that is not its own, often because two libraries do not match{_WHERE}",
    signal.SIGBUS: "memory has no storage behind it: /dev/shm or a disk is full, or a mapped file was truncated",
    signal.SIGFPE: f"a library divided an integer by zero{_WHERE}",
}
#: Classes of the strategies that Model.fit of Keras 3 does not support.
KERAS_2_STRATEGIES = tuple(item.traits.names[0] for item in Strategy if item.traits.fit_needs_keras_2)


def hint_of(error: str) -> str:
    """Return a hint on what to do about an error message; empty if none is known."""
    return next((hint for pattern, hint in _HINTS if re.search(pattern, error)), "")


def missing_command(name: str, commands: Iterable[str]) -> tuple[str, str]:
    """Return `NAME: command not found`, and a hint with a similar command, if any."""
    near = get_close_matches(name, sorted(set(commands)), n=1)
    return f"{name}: command not found", f"did you mean `{near[0]}`?" if near else ""


# Keras 3. `versions`: name of a package -> version; `pip`: the command.


def keras_3_problem(
    versions: Mapping[str, str], strategy: str, pip: str = "pip", *, imports_keras: bool = False
) -> str:
    """Return why Keras 3 cannot train with a strategy's class, and the remedy."""
    versions = {name: _series(version) for name, version in versions.items()}
    # The variable changes tf.keras only.
    remedy = "import tf_keras in place of keras" if imports_keras else _SET_KERAS_2
    sentence = f"Model.fit of Keras {versions.get('keras') or 3} does not work with {strategy}."
    if versions.get("tf_keras"):
        return f"{sentence} tf_keras {versions['tf_keras']} is installed: {remedy}"
    return f"{sentence} Install tf_keras ({keras_2_command(versions, pip)}) and {remedy}"


def keras_2_command(versions: Mapping[str, str], pip: str = "pip") -> str:
    """Return the command that installs Keras 2."""
    series = next((_series(versions[name]) for name in ("tensorflow", "tensorflow_cpu") if versions.get(name)), "")
    # Its dependencies would install a second TensorFlow.
    return f"{pip} install --no-deps " + (f'"tf_keras~={series}.0"' if series else "tf_keras")


def missing_keras_2(versions: Mapping[str, str], pip: str = "pip") -> str:
    """Return what to do if the variable KERAS_2 is set, but tf_keras is missing."""
    version = versions.get("keras", "")
    is_old = version.partition(".")[0] in ("1", "2")
    return f"remove it, Keras {version} needs no variable" if is_old else keras_2_command(versions, pip)


def ignored_keras_2(value: str) -> str:
    """Return why TensorFlow ignores a value of KERAS_2; empty if it accepts it."""
    return "" if value in KERAS_2_VALUES else f"TensorFlow ignores `{value}`; it accepts {', '.join(KERAS_2_VALUES)}"


def _series(version: str) -> str:
    return ".".join(version.split(".")[:2])
