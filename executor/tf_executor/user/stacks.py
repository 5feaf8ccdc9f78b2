"""Print the Python stacks of a task's processes. Python 3.6.

py-spy reads them from outside: the program need not cooperate, and goes on.
"""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

_PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")


def main() -> int:
    """Print a dump of each Python process; return 1 if none could be read."""
    spy = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if spy is None:
        sys.stderr.write(f"py-spy is not installed here; run: {sys.executable} -m pip install py-spy\n")
        return 1
    codes = [_dump(spy, pid) for pid in _python_processes()]
    if not codes:
        sys.stderr.write("no Python process runs in this task\n")
    return 0 if 0 in codes else 1


def _dump(spy: str, pid: int) -> int:
    command = [spy, "dump", "--pid", str(pid)]
    pipe = subprocess.PIPE
    done = subprocess.run(command, stdout=pipe, stderr=pipe, universal_newlines=True)  # noqa: UP021 - Python 3.6
    sys.stdout.write(f"{done.stdout}\n" if done.returncode == 0 else "")
    if "ermission denied" in done.stderr:
        scope = _PTRACE_SCOPE.read_text().strip() if _PTRACE_SCOPE.exists() else ""
        known = f"kernel.yama.ptrace_scope is {scope} on this host, not 0" if scope not in ("", "0") else ""
        why = known or "in a container, it needs the capability SYS_PTRACE"
        sys.stderr.write(f"process {pid}: this user may not read its memory (ptrace): {why}\n")
    elif done.returncode:
        sys.stderr.write(f"process {pid}: {done.stderr.strip()}\n")
    return done.returncode


def _python_processes() -> Iterator[int]:
    """Yield the task's processes that run Python, in other sessions than this."""
    parents = dict(_parents())
    # The command of a user leads a session of its own; its parent is the executor.
    executor = parents.get(os.getsid(0), 0)
    for pid in sorted(_below(executor, parents)):
        with suppress(OSError):  # it has ended
            if os.getsid(pid) != os.getsid(0) and _is_python(pid):
                yield pid


def _is_python(pid: int) -> bool:
    try:
        return Path(os.readlink(f"/proc/{pid}/exe")).name.startswith("python")
    except PermissionError:  # py-spy may not read it either, and says so
        return True


def _below(root: int, parents: Dict[int, int]) -> List[int]:
    children = [pid for pid, parent in parents.items() if parent == root]
    return children + [each for pid in children for each in _below(pid, parents)]


def _parents() -> Iterator[Tuple[int, int]]:
    for path in Path("/proc").glob("[1-9]*/stat"):
        with suppress(OSError):  # it has ended
            # The name before `)` may contain anything (proc(5), stat).
            yield int(path.parent.name), int(path.read_text().rpartition(")")[2].split()[1])


if __name__ == "__main__":
    sys.exit(main())
