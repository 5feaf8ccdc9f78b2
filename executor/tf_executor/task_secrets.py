"""The secrets of the one task: fetched, put where its programs find them, renewed, masked, forgotten."""

from __future__ import annotations

import logging
import os
import random
import signal
import threading
import uuid
from typing import Callable, Mapping, Sequence

from tf_executor.claims import Claim, HandoverError, Secret
from tf_executor.events import Stage
from tf_executor.forms import forms
from tf_executor.memory_files import MemoryFiles, Owner
from tf_executor.payload import Payload
from tf_executor.processes import catches, descendants, signal_process

#: What is the user's own; checks and questions of ours get no secret.
STAGES = (Stage.FETCH, Stage.PRE, Stage.PROGRAM, Stage.POST)
_FEW = 200  # characters of another's error that are told
#: Parts of the interval between two questions for new values: tasks that start together do not ask together.
_SOON, _LATE = 0.75, 1.25

log = logging.getLogger(__name__)


def _fetch(claim: Claim, patience: float | None = None) -> Sequence[Secret]:
    from tf_executor.handover import PATIENCE, fetch  # slow to import, and few tasks have secrets

    return fetch(claim, PATIENCE if patience is None else patience)


class TaskSecrets:
    """Empty until `fetch`, and again after `forget`. Safe for threads."""

    def __init__(
        self,
        payload: Payload,
        task_id: str,
        environ: Mapping[str, str],
        sandbox: str,
        get: Callable[..., Sequence[Secret]] = _fetch,
    ) -> None:
        """`environ`: the executor's own environment."""
        self._claim = Claim(payload.secrets_url, task_id, payload.secrets_token, uuid.uuid4().hex, payload.secrets_ca)
        # References of Mesos itself are resolved by the agent, into our own environment.
        self._known = [payload.environment.get(name) or environ.get(name, "") for name in payload.secrets]
        self._sandbox, self._get = sandbox, get
        self._interval = payload.secrets_reload
        self._lock = threading.Lock()
        self._files = MemoryFiles()
        self._secrets: Sequence[Secret] = ()
        #: What was replaced: it may be in what the program has printed.
        self._former: list[Secret] = []
        self._over = threading.Event()
        #: There is something to do before the next question is due.
        self._wake = threading.Event()

    def fetch(self, owner: Owner) -> str:
        """Get them and write the files for `owner`; why it cannot be done, or empty."""
        try:
            secrets = self._get(self._claim)
            _check(secrets)
            with self._lock:
                if self._over.is_set():
                    return "the task has ended"
                self._files.write(self._sandbox, {item.file: item.value for item in secrets if item.file}, owner)
                self._secrets = secrets
        except HandoverError as error:
            return f"no secrets: {error}"
        except (OSError, ValueError) as error:
            return f"the files of secrets cannot be written: {str(error)[:_FEW]}"
        log.info("secrets: %s", ", ".join(item.env or item.file for item in secrets))
        if self._interval:
            threading.Thread(target=self._reload, args=(owner,), name="reload", daemon=True).start()
        return ""

    def environment(self, stage: Stage | None) -> dict[str, str]:
        """Variables for a stage; none for what is no stage of the user's."""
        if stage not in STAGES:
            return {}
        return {item.env: self._variable(item) for item in self._secrets if item.env}

    def values(self) -> list[str]:
        """Everything that must not be shown, also in the forms that programs like to print."""
        values = [os.fsencode(text) for text in self._known]
        values += [item.value for item in (*self._secrets, *self._former)]
        return [form for value in values for form in forms(value)]

    def forget(self) -> None:
        """The task is over: remove the files."""
        with self._lock:
            self._over.set()
            self._wake.set()
            self._files.remove()

    def renew(self) -> None:
        """Ask for new values now, if there may be any."""
        self._wake.set()

    # While the program runs.

    def _reload(self, owner: Owner) -> None:
        """Ask now and then for new values. What goes wrong is told once, and tried again: the old ones are there."""
        told = ""
        while True:
            self._wake.wait(self._interval * random.uniform(_SOON, _LATE))  # noqa: S311 - no secret
            self._wake.clear()
            if self._over.is_set():
                return
            trouble = self._renew(owner)
            if trouble and trouble != told:
                log.warning("no new secrets: %s", trouble)
            told = trouble

    def _renew(self, owner: Owner) -> str:
        """Ask once; why there is no answer, or empty."""
        try:
            changed = self._changed(self._get(self._claim, 0.0))
            with self._lock:
                if self._over.is_set() or not changed:
                    return ""
                self._files.replace({item.file: item.value for item in changed}, owner)
                replaced = {item.file: item for item in changed}
                self._former += [item for item in self._secrets if item.file in replaced]
                self._secrets = [replaced.get(item.file, item) for item in self._secrets]
        except (HandoverError, OSError) as error:
            return str(error)[:_FEW]
        log.info("new: %s; SIGHUP for processes %s", ", ".join(sorted(replaced)), _hang_up())
        return ""

    def _changed(self, found: Sequence[Secret]) -> list[Secret]:
        """Files that we have with another content; those that the program does not want to hear of stay as they are."""
        ours = {item.file: item.value for item in self._secrets if item.file}
        return [item for item in found if item.reload and item.file in ours and item.value != ours[item.file]]

    def _variable(self, item: Secret) -> str:
        return f"{self._sandbox}/{item.file}" if item.file else os.fsdecode(item.value)


def _hang_up() -> list[int]:
    """Tell the task's processes; who has no handler would die of it, such as the shell around the program."""
    told = [pid for pid in descendants(os.getpid()) if catches(pid, signal.SIGHUP)]
    for pid in told:
        signal_process(pid, signal.SIGHUP)
    return told


def _check(secrets: Sequence[Secret]) -> None:
    for item in secrets:
        if item.env and not item.file and b"\0" in item.value:
            raise HandoverError(f"the value for {item.env} holds a NUL character, which no variable can; use a file")
