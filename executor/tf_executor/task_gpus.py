"""The GPUs of the one task: chosen in a thread, held while it runs."""

from __future__ import annotations

import logging
import os
import shlex
from pathlib import Path
from typing import Mapping, Sequence

from tf_executor import gpus
from tf_executor.environment import public
from tf_executor.messages import describe
from tf_executor.payload import Payload
from tf_executor.supervisor import SpawnError, Supervisor, Surroundings

#: Seconds for nvidia-smi: without persistence mode it initialises the driver first.
NVIDIA_SMI_TIMEOUT = 60.0

log = logging.getLogger(__name__)


class TaskGpus:
    """None until `choose`, and for a task that has none."""

    def __init__(self, payload: Payload, environ: Mapping[str, str], sandbox: str, supervisor: Supervisor) -> None:
        self._payload, self._environ = payload, environ
        self._sandbox, self._supervisor = sandbox, supervisor
        self._locked: gpus.Locked | None = gpus.Locked() if payload.gpus == 0 else None

    @property
    def uuids(self) -> Sequence[str] | None:
        """None: all that the container shows."""
        return None if self._locked is None else self._locked.uuids

    def choose(self) -> str:
        """Take them; why the task cannot have them, or empty. May wait for the driver."""
        payload = self._payload
        try:
            if payload.gpu_devices:
                self._locked = gpus.Locked(tuple(payload.gpu_devices))
            else:
                self._locked = gpus.choose(payload.gpus, self._environ, self._ask)
        except (gpus.GpuError, SpawnError) as error:
            log.warning("%s", error)
            # Unchecked, a task may run with all that its container shows, but never with what others hold.
            unchecked = isinstance(error, gpus.UnknownGpusError) and not payload.gpu_check
            return "" if unchecked else str(error)
        log.info("GPUs %s", self._locked.uuids)
        return ""

    def release(self) -> None:
        """Others may have them."""
        if self._locked is not None:
            self._locked.release()

    def _ask(self, command: Sequence[str]) -> str:
        """What a program of the agent's says."""
        output = os.memfd_create("output")
        with os.fdopen(output, "rb") as file:
            around = Surroundings(public(self._environ), self._sandbox, output, output)
            ending = self._supervisor.run(shlex.join(command), around, NVIDIA_SMI_TIMEOUT)
            file.seek(0)
            text = file.read().decode("utf-8", "replace").strip()
        name = Path(command[0]).name
        if ending is None:
            raise gpus.UnknownGpusError(f"{name} gave no answer in {NVIDIA_SMI_TIMEOUT:g} s: the GPU driver may hang")
        if ending.exit_code != 0:
            raise gpus.UnknownGpusError(f"{name}: {describe(ending)}: {text[-200:]}")
        return text
