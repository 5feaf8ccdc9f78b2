"""The environment of the user's program. Pure: the payload, the executor's own environment -> a new mapping."""

from __future__ import annotations

import json
import posixpath
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from tf_executor import devices, reporting
from tf_executor.interpreter import Interpreter
from tf_executor.payload import Payload

#: What a program may want to know of Mesos. Everything else that the agent sets under MESOS_ is between it and the
#: executor: the authentication token is a secret; a Mesos client in the program would take the rest for its own.
MESOS_KEPT = frozenset(
    ["MESOS_SANDBOX", "MESOS_DIRECTORY", "MESOS_FRAMEWORK_ID", "MESOS_EXECUTOR_ID", "MESOS_SLAVE_ID", "MESOS_TASK_ID"]
)
#: The agent's default for a PATH that is not there (its `executorEnvironment`).
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Folder in the working directory for logs and checkpoints of a job that has no other.
LOG_FOLDER = "logs"
#: Where programs make temporary files (POSIX, 8.3).
TEMPORARY = "TMPDIR"


@dataclass(frozen=True)
class Place:
    """Where the program runs."""

    sandbox: str
    interpreter: Interpreter
    #: Folder with the user's part of this package; empty: it could not be made.
    library: str = ""
    #: Named pipe for progress; empty: there is none.
    progress: str = ""
    #: Folder for temporary files; empty: the one that everybody has.
    temporary: str = ""


def program_environment(
    payload: Payload, base: Mapping[str, str], place: Place, gpus: Sequence[str] | None = ()
) -> dict[str, str]:
    """Environment for `payload`'s program; `payload.environment` wins over all that is set here.

    `base` is the executor's own environment, which holds neither HOME nor LANG: an agent does not pass its own on.
    `gpus`: indices or UUIDs of the task's GPUs; None: all that the container shows.
    """
    result = public(base)
    result.setdefault("HOME", place.sandbox)
    result.setdefault("LANG", "C.UTF-8")
    result.update(_cluster_variables(payload))
    result.update(_python_variables(place.interpreter, base.get("PATH") or DEFAULT_PATH))
    result["SANDBOX"] = place.sandbox
    result.update(_job_variables(payload, place.sandbox))
    result.update(_gpu_variables(payload.gpus, gpus))
    if place.progress:
        result[reporting.PIPE] = place.progress
    if place.temporary:
        result[TEMPORARY] = place.temporary
    result.update(payload.environment)
    result["PYTHONPATH"] = _python_path(payload, place, result.get("PYTHONPATH", ""))
    return {name: value for name, value in result.items() if value or name != "PYTHONPATH"}


def public(base: Mapping[str, str]) -> dict[str, str]:
    """What is not between the agent and the executor."""
    return {name: value for name, value in base.items() if not _is_private(name)}


def _is_private(name: str) -> bool:
    return name.startswith("LIBPROCESS_") or (name.startswith("MESOS_") and name not in MESOS_KEPT)


def _cluster_variables(payload: Payload) -> dict[str, str]:
    cluster: Mapping[str, Any] = payload.tf_config.get("cluster", {})
    return {
        "TF_CONFIG": json.dumps(payload.tf_config),
        "CLUSTER_SPEC": json.dumps(cluster),
        "JOB_NAME": payload.job,
        "TASK_INDEX": str(payload.index),
        "TASK_NAME": payload.task,
        "PS_HOSTS": hosts(cluster.get("ps", ())),
        "WORKER_HOSTS": hosts(cluster.get("worker", ())),
        **({"TASK_PORT": str(payload.port)} if payload.port else {}),
    }


def hosts(addresses: Any) -> str:
    """TensorFlow takes a job as a list or, where some indices are missing, as {index: address}."""
    if isinstance(addresses, dict):
        addresses = [addresses[index] for index in sorted(addresses, key=int)]
    return ",".join(addresses)


def log_dir(payload: Payload, sandbox: str) -> str:
    """Where the program shall keep its logs and checkpoints."""
    return payload.log_dir or f"{sandbox}/{LOG_FOLDER}"


def _job_variables(payload: Payload, sandbox: str) -> dict[str, str]:
    """What `job` reads, and what may be useful to others too."""
    variables = {"LOG_DIR": log_dir(payload, sandbox)}
    if payload.strategy:
        variables["DISTRIBUTION_STRATEGY"] = payload.strategy
    if payload.job_name:
        variables.update({"JOB_MODULE": payload.job_name, "JOB_CONTEXT": payload.job_context})
    return variables


def _gpu_variables(count: int, gpus: Sequence[str] | None) -> dict[str, str]:
    if count == 0:
        # TensorFlow takes every GPU that it sees, and an agent without the GPU isolator hides none.
        return {devices.GPUS: "0", "CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
    # Without memory growth TensorFlow takes all memory of a GPU, also what others beside it need.
    variables = {devices.GPUS: str(count), "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    if gpus is not None:
        variables.update(dict.fromkeys(("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"), ",".join(gpus)))
    return variables


def _python_path(payload: Payload, place: Place, given: str) -> str:
    """The user's folders, then ours: a module of the user's wins."""
    job = place.sandbox if payload.job_name else ""
    if payload.job_path:
        job = posixpath.join(place.sandbox, payload.job_path)
    return ":".join(folder for folder in (job, given, place.library) if folder)


def _python_variables(interpreter: Interpreter, path: str) -> dict[str, str]:
    variables = {"PYTHONUNBUFFERED": "1", "PATH": ":".join((*interpreter.folders, path))}
    if interpreter.virtual_env:
        variables["VIRTUAL_ENV"] = interpreter.virtual_env
    return variables
