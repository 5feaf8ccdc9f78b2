"""Time of short commands, and of the parts of a short `local run`."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

PROGRAM = str(Path(sys.executable).with_name("dcos-tensorflow"))
_COMPLETION = {"_DCOS_TENSORFLOW_COMPLETE": "bash_complete", "COMP_WORDS": "dcos-tensorflow lo", "COMP_CWORD": "1"}
#: Name -> command, variables and exit code with nothing to show; each is compared with the first in the same round.
_COMMANDS: Mapping[str, tuple[Sequence[str], Mapping[str, str], int]] = {
    'python -c "import click"': ([sys.executable, "-c", "import click"], {}, 0),
    "--version": ([PROGRAM, "--version"], {}, 0),
    "--help": ([PROGRAM, "--help"], {}, 0),
    "completion": ([PROGRAM], _COMPLETION, 0),
    "list": ([PROGRAM, "list"], {}, 0),
    "status": ([PROGRAM, "status"], {}, 3),
    "history": ([PROGRAM, "history"], {}, 0),
}
_PARTS = (
    "the command, until it starts the scheduler",
    "the scheduler, until it launches the tasks",
    "agent and executors, until the first line",
    "both programs, until the last has ended",
    "the end: the scheduler's exit and the report",
)


def measure(cluster: Path, rounds: int) -> str:
    """Return two tables; `cluster`: folder of a running local Mesos."""
    with tempfile.TemporaryDirectory() as home:
        runs = [_dates(Path(home), cluster) for _ in range(rounds + 1)][1:]
        took = [[_seconds(*each, home) for each in _COMMANDS.values()] for _ in range(rounds)]
    lines = ["| command | s | ratio |", "| --- | --- | --- |"]
    for place, name in enumerate(_COMMANDS):
        ratio = statistics.median(each[place] / each[0] for each in took)
        lines.append(f"| `{name}` | {statistics.median(each[place] for each in took):.2f} | {ratio:.1f} |")
    lines += ["", "| part of a `local run` of two `date` programs | s | since the start |", "| --- | --- | --- |"]
    for place, part in enumerate(_PARTS):
        own, since = (statistics.median(run[place + 1] - run[start] for run in runs) for start in (place, 0))
        lines.append(f"| {part} | {own:.2f} | {since:.2f} |")
    return "\n".join(lines)


def _seconds(command: Sequence[str], variables: Mapping[str, str], code: int, home: str) -> float:
    begun, environment = time.monotonic(), {**os.environ, "XDG_STATE_HOME": f"{home}/empty", **variables}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert code == done.returncode, done.stderr
    return time.monotonic() - begun


def _dates(home: Path, cluster: Path) -> list[float]:
    """Return the times at which the parts begin, and the end."""
    small = {"command": "date +%s.%N", "count": 2, "cpus": 0.1, "mem": 64}
    path, environment = f"{home}/dates.json", {**os.environ, "XDG_STATE_HOME": str(home)}
    Path(path).write_text(json.dumps({"service": {"name": "dates", "strategy": "independent"}, "worker": small}))
    command, show = ["local", "run", path, f"--dir={cluster}", "--json"], ["history", "show", "last", "--json"]
    begun = time.time()
    result = json.loads(subprocess.run([PROGRAM, *command], env=environment, capture_output=True, check=True).stdout)
    end = time.time()
    run = json.loads(subprocess.run([PROGRAM, *show], env=environment, capture_output=True, check=True).stdout)
    line = min(float(Path(task["logs"], "stdout").read_text()) for task in result["tasks"])
    first, second = run["launches"]
    return [begun, run["submitted"], first["launched"], line, max(first["ended"], second["ended"]), end]
