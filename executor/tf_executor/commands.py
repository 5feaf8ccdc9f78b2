"""The shell command lines of a task's stages. Pure."""

from __future__ import annotations

import re
import shlex
from typing import Any, Mapping

from tf_executor.environment import hosts, log_dir
from tf_executor.events import Stage
from tf_executor.payload import Payload

#: `{name}`, but not the shell's `${name}`.
_PLACEHOLDER = re.compile(r"(?<!\$)\{([a-z_]+)\}")


def stages(payload: Payload) -> tuple[Stage, ...]:
    """What is run for the task, in order."""
    wanted = {
        Stage.SECRETS: bool(payload.secrets_url),
        Stage.DEVICES: payload.gpus > 0,
        Stage.FETCH: bool(payload.fetch),
        Stage.PRE: bool(payload.pre),
        Stage.GPU_CHECK: payload.gpus > 0 and payload.gpu_check,
        Stage.PROGRAM: True,
        Stage.POST: bool(payload.post),
    }
    return tuple(stage for stage, is_wanted in wanted.items() if is_wanted)


def command(stage: Stage, payload: Payload, sandbox: str) -> str:
    """What the shell runs for a stage that is a process."""
    if stage is Stage.FETCH:
        return f"exec python -m tf_executor.fetch {' '.join(map(shlex.quote, payload.fetch))}"
    if stage is Stage.GPU_CHECK:
        return f"exec python -m tf_executor.gpu_check {payload.gpus}"
    if stage is Stage.PROGRAM:
        return _program(payload, sandbox)
    return filled_in(payload.pre if stage is Stage.PRE else payload.post, payload, sandbox)


def _program(payload: Payload, sandbox: str) -> str:
    if not payload.command:
        return "exec python -m tf_executor.job"
    values = placeholders(payload, sandbox)
    flags = [f"--{name}={values[name]}" for name in ("ps_hosts", "worker_hosts", "job_name", "task_index")]
    line = filled_in(payload.command, payload, sandbox)
    return f"{line} {' '.join(map(shlex.quote, flags))}" if payload.cluster_flags else line


def filled_in(text: str, payload: Payload, sandbox: str) -> str:
    """`text` with the placeholders that we know; other braces, such as those of JSON or the shell, stay as they are."""
    values = placeholders(payload, sandbox)
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


def placeholders(payload: Payload, sandbox: str) -> Mapping[str, str]:
    """Name in braces -> what it stands for."""
    cluster: Mapping[str, Any] = payload.tf_config.get("cluster", {})
    return {
        "ps_hosts": hosts(cluster.get("ps", ())),
        "worker_hosts": hosts(cluster.get("worker", ())),
        "job_name": payload.job,
        "task_index": str(payload.index),
        "task_name": payload.task,
        "port": str(payload.port),
        "log_dir": log_dir(payload, sandbox),
    }
