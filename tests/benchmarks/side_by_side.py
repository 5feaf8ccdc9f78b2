"""The same training started by hand and by `dcos-tensorflow local run`.

    scripts/side-by-side [--rounds 3] [--workers 1,2,4] [--steps 300] [--write docs/performance.md]

All on one machine, by turns, so that what else it does slows them alike. A real Mesos is up before the clock starts.
Times are seconds from the submission (of the command, or the first process) to the first step of the first worker, and
to the end. With --write the table goes into the document, between its marks.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
TRAINING = Path(__file__).with_name("training.py")
#: Of one training.
PATIENCE = 600
_PLACE = re.compile(r"(<!-- side by side -->\n).*?(<!-- end -->)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Took:
    """One training. Seconds from its submission; examples a second of all workers together."""

    first: float
    total: float
    examples: float
    #: From the launch of the tasks on; None: not known.
    launched: float | None = None


def by_hand(workers: int, steps: int) -> Took:
    """The same processes, with nobody between."""
    with ExitStack() as stack:
        addresses = [f"127.0.0.1:{port}" for port in free_ports(workers + 1)]
        flags = [f"--ps_hosts={addresses[0]}", f"--worker_hosts={','.join(addresses[1:])}", f"--steps={steps}"]
        submitted = time.time()
        tasks = [("ps", 0), *(("worker", index) for index in range(workers))]
        commands = [
            [sys.executable, str(TRAINING), *flags, f"--job_name={job}", f"--task_index={n}"] for job, n in tasks
        ]
        started = [stack.enter_context(process(command)) for command in commands]
        outputs = [one.communicate(timeout=PATIENCE)[0] for one in started[1:2]]
        total = time.time() - submitted
        outputs += [one.communicate(timeout=PATIENCE)[0] for one in started[2:]]
    return took([json.loads(out.splitlines()[-1]) for out in outputs], submitted, total)


def by_us(workers: int, steps: int, cluster: Path) -> Took:
    """`local run`, with everything that it does: checks, package, app, scheduler, gang, executors, end."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "options.json"
        path.write_text(json.dumps(options(workers, steps)))
        shutil.copy(TRAINING, folder)
        command = [sys.executable, "-m", "tf_scheduler", "local", "run", str(path), "--dir", str(cluster), "--json"]
        submitted = time.time()
        with process(command, XDG_STATE_HOME=folder) as run:
            out, _ = run.communicate(timeout=PATIENCE)
        total = time.time() - submitted
        result = json.loads(out)
        assert result["state"] == "succeeded", result["reason"]
        logs = [Path(task["logs"]) / "stdout" for task in result["tasks"] if task["name"].startswith("worker")]
        found = [json.loads(log.read_text().splitlines()[-1]) for log in logs]
        known = [sys.executable, "-m", "tf_scheduler", "history", "show", "last", "--json"]
        with process(known, XDG_STATE_HOME=folder) as asked:
            record = json.loads(asked.communicate(timeout=PATIENCE)[0])
    launched = min(launch["launched"] for launch in record["launches"])
    return took(found, submitted, total, launched)


def took(found: Sequence[dict[str, float]], submitted: float, total: float, launched: float | None = None) -> Took:
    first = min(one["first"] for one in found)
    examples = sum(one["examples_per_second"] for one in found)
    return Took(first - submitted, total, examples, None if launched is None else first - launched)


def options(workers: int, steps: int) -> dict[str, object]:
    small = {"mem": 1024, "disk": 0}
    return {
        "service": {
            "name": "side-by-side",
            "strategy": "between_graph",
            "job_url": TRAINING.name,
            "command": f"python {TRAINING.name} --steps {steps}",
        },
        "parameter_server": {"count": 1, "cpus": 0.3, "cluster_flags": True, **small},
        "worker": {"count": workers, "cpus": 0.5, "cluster_flags": True, **small},
    }


@contextmanager
def process(command: Sequence[str], **environment: str) -> Iterator[subprocess.Popen[str]]:
    """In a session of its own; at the end nothing of it is left."""
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", **environment}
    started = subprocess.Popen(
        command, env=quiet, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    try:
        yield started
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()
        if started.stdout:
            started.stdout.close()


@contextmanager
def mesos(folder: Path) -> Iterator[None]:
    """A local Mesos."""
    base = [sys.executable, "-m", "tf_scheduler", "local"]
    subprocess.run([*base, "up", "--dir", str(folder)], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run([*base, "down", "--dir", str(folder)], check=False, capture_output=True)


def free_ports(count: int) -> list[int]:
    """All are held until all are known, so that they differ."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]


def measured(given: argparse.Namespace) -> Iterator[tuple[int, str, list[Took]]]:
    """Workers, way, and what each round took; by turns."""
    with tempfile.TemporaryDirectory() as folder, mesos(Path(folder) / "cluster"):
        for workers in given.workers:
            found: dict[str, list[Took]] = {}
            for _ in range(given.rounds):
                found.setdefault("by hand", []).append(by_hand(workers, given.steps))
                found.setdefault("local run", []).append(by_us(workers, given.steps, Path(folder) / "cluster"))
            for way, rounds in found.items():
                yield workers, way, rounds
                print(workers, way, *rounds, sep="\n  ", flush=True)


def table(found: Sequence[tuple[int, str, list[Took]]]) -> str:
    """Medians, and each by that of the processes started by hand."""
    first = ("first step, s", "ratio", "launch to first step, s")
    head = ("workers", "started", *first, "total, s", "ratio", "examples/s", "ratio")
    lines = [head, ("---",) * len(head)]
    for workers, way, rounds in found:
        bare = next(each for number, name, each in found if number == workers and name == "by hand")
        values = [str(workers), way]
        launched = [one.launched for one in rounds if one.launched is not None]
        for name, digits in (("first", 2), ("total", 2), ("examples", 0)):
            value, base = (statistics.median(getattr(one, name) for one in each) for each in (rounds, bare))
            values += [f"{value:,.{digits}f}", f"{value / base:.3f}" if rounds is not bare else ""]
            if name == "first":
                values.append(f"{statistics.median(launched):.2f}" if launched else "")
        lines.append(tuple(values))
    return "\n".join(re.sub(r"\|  (?=\|)", "| ", f"| {' | '.join(cells)} |") for cells in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2, 4])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--write", type=Path, metavar="FILE")
    given = parser.parse_args()
    text = table(list(measured(given)))
    print(text)
    if given.write:
        load = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
        load = f"Rounds: {given.rounds}; steps of each worker: {given.steps}; {load}."
        told = given.write.read_text()
        given.write.write_text(_PLACE.sub(lambda place: f"{place[1]}\n{load}\n\n{text}\n\n{place[2]}", told))


if __name__ == "__main__":
    main()
