"""Agents that limit the memory of containers by control groups (cgroups v1)."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tf_scheduler.errors import JobError

_HIERARCHIES = Path("/sys/fs/cgroup")
_FREEZER, _MEMORY = (_HIERARCHIES / name / "cgroup.procs" for name in ("freezer", "memory"))
#: Starts at the end of this process, also by SIGKILL: its input ends then. The groups are busy until Mesos has ended.
_REMOVE = f"""\
cat > /dev/null
for attempt in $(seq 300); do
  find {_HIERARCHIES}/*/"$1" -depth -type d -exec rmdir {{}} ';' 2> /dev/null
  ls -d {_HIERARCHIES}/*/"$1" > /dev/null 2>&1 || exit 0
  sleep 0.1
done
exit 1
"""


class UnavailableError(Exception):
    """This machine cannot run a job; the message is the reason."""


@contextmanager
def memory_limits() -> Iterator[Mapping[str, str]]:
    """Yield flags of such agents; then remove their groups, also after a kill.

    Raises UnavailableError without root rights or cgroups v1.
    """
    if not all(os.access(path, os.W_OK) for path in (_FREEZER, _MEMORY)):
        raise UnavailableError(f"skipped: {_FREEZER} and {_MEMORY} (cgroups v1) are not writable")
    name = f"dcos-tensorflow-chaos-{uuid.uuid4().hex}"
    with subprocess.Popen(
        ["/bin/sh", "-c", _REMOVE, "sh", name], stdin=subprocess.PIPE, start_new_session=True
    ) as remover:
        yield {"launcher": "linux", "isolation": "cgroups/mem,environment_secret", "cgroups_root": name}
        assert remover.stdin is not None
        remover.stdin.close()
    if remover.returncode:
        raise JobError(f"control groups left: {name}")
