"""The secrets of the one task: fetched, put where its programs find them, masked, forgotten."""

from __future__ import annotations

import base64
import logging
import os
import threading
import urllib.parse
import uuid
from typing import Callable, Iterator, Mapping, Sequence

from tf_executor.events import Stage
from tf_executor.handover import Claim, HandoverError, Secret, fetch
from tf_executor.memory_files import MemoryFiles, Owner
from tf_executor.payload import Payload

#: What is the user's own; checks and questions of ours get no secret.
STAGES = (Stage.FETCH, Stage.PRE, Stage.PROGRAM, Stage.POST)
_FEW = 200  # characters of another's error that are told

log = logging.getLogger(__name__)


class TaskSecrets:
    """Empty until `fetch`, and again after `forget`. Safe for threads."""

    def __init__(
        self,
        payload: Payload,
        task_id: str,
        environ: Mapping[str, str],
        sandbox: str,
        get: Callable[[Claim], Sequence[Secret]] = fetch,
    ) -> None:
        """`environ`: the executor's own environment."""
        self._claim = Claim(payload.secrets_url, task_id, payload.secrets_token, uuid.uuid4().hex, payload.secrets_ca)
        # References of Mesos itself are resolved by the agent, into our own environment.
        self._known = [payload.environment.get(name) or environ.get(name, "") for name in payload.secrets]
        self._sandbox, self._get = sandbox, get
        self._lock = threading.Lock()
        self._files = MemoryFiles()
        self._secrets: Sequence[Secret] = ()
        self._over = False

    def fetch(self, owner: Owner) -> str:
        """Get them and write the files for `owner`; why it cannot be done, or empty."""
        try:
            secrets = self._get(self._claim)
            _check(secrets)
            with self._lock:
                if self._over:
                    return "the task has ended"
                self._files.write(self._sandbox, {item.file: item.value for item in secrets if item.file}, owner)
                self._secrets = secrets
        except HandoverError as error:
            return f"no secrets: {error}"
        except (OSError, ValueError) as error:
            return f"the files of secrets cannot be written: {str(error)[:_FEW]}"
        log.info("secrets: %s", ", ".join(item.env or item.file for item in secrets))
        return ""

    def environment(self, stage: Stage | None) -> dict[str, str]:
        """Variables for a stage; none for what is no stage of the user's."""
        if stage not in STAGES:
            return {}
        return {item.env: self._variable(item) for item in self._secrets if item.env}

    def values(self) -> list[str]:
        """Everything that must not be shown, also in the forms that programs like to print."""
        texts = self._known + [item.value.decode("utf-8", "replace") for item in self._secrets]
        return [form for text in texts for form in _forms(text)]

    def forget(self) -> None:
        """The task is over: remove the files."""
        with self._lock:
            self._over = True
            self._files.remove()

    def _variable(self, item: Secret) -> str:
        return f"{self._sandbox}/{item.file}" if item.file else os.fsdecode(item.value)


def _forms(text: str) -> Iterator[str]:
    if not (stripped := text.strip()):
        return
    yield from dict.fromkeys(
        (stripped, base64.b64encode(text.encode()).decode().rstrip("="), urllib.parse.quote(stripped, safe=""))
    )


def _check(secrets: Sequence[Secret]) -> None:
    for item in secrets:
        if item.env and not item.file and b"\0" in item.value:
            raise HandoverError(f"the value for {item.env} holds a NUL character, which no variable can; use a file")
