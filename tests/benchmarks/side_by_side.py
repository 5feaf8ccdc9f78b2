"""Compare trainings started by hand and by `dcos-tensorflow local run`.

    scripts/side-by-side [--rounds 3] [--workers 1,2,4] [--steps 1500] [--write docs/evidence/performance.md]

Two programs: training.py in the style of TensorFlow 1, with an early first step; and digits.py, a chief, two workers
and Keras' Model.fit. Both ways alternate on one machine, and each round starts with the other one, so that other load
affects both. A real Mesos is up before the clock starts, and one uncounted run of each way loads files and byte code.
Times are seconds from the submission (the command, or the first process) to the first step of the first worker, and to
the end. --write replaces the table between the marks of the document.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import quick

HOME = Path(__file__).resolve().parents[2]
#: Maximum seconds of one training.
PATIENCE = 600
_PLACES = [re.compile(rf"(<!-- {mark} -->\n).*?(<!-- end -->)", re.DOTALL) for mark in ("side by side", "short")]


@dataclass(frozen=True, slots=True)
class Took:
    """Result of one training: seconds since submission, and examples/s of all workers."""

    first: float
    total: float
    examples: float
    #: From the launch of the tasks on; None: not known.
    launched: float | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """A training; the first of `tasks` leads and ends it, `tellers` print its results."""

    name: str
    tasks: tuple[tuple[str, int], ...]
    tellers: tuple[str, ...]
    #: As options of the service.
    strategy: str
    #: Whether tasks find each other by flags; else by TF_CONFIG.
    flags: bool

    @property
    def file(self) -> Path:
        return Path(__file__).with_name(f"{self.name}.py")

    def count(self, job: str) -> int:
        return sum(name == job for name, _ in self.tasks)


def training(workers: int) -> Program:
    tasks = (*(("worker", index) for index in range(workers)), ("ps", 0))
    return Program("training", tasks, ("worker",), "between_graph", flags=True)


DIGITS = Program(
    "digits", (("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0)), ("chief",), "parameter_server", False
)


def by_hand(program: Program, steps: int) -> Took:
    """Start the same processes directly."""
    with ExitStack() as stack:
        ports = free_ports(len(program.tasks))
        cluster: dict[str, list[str]] = {}
        for (job, _), port in zip(program.tasks, ports, strict=True):
            cluster.setdefault(job, []).append(f"127.0.0.1:{port}")
        submitted = time.time()
        started = {
            task: stack.enter_context(process(*by_hand_command(program, cluster, task, steps)))
            for task in sorted(program.tasks, key=lambda task: task[0] != "ps")
        }
        outputs = {program.tasks[0]: started[program.tasks[0]].communicate(timeout=PATIENCE)[0]}
        total = time.time() - submitted
        for task in program.tasks[1:]:
            if task[0] in program.tellers:
                outputs[task] = started[task].communicate(timeout=PATIENCE)[0]
    return took([json.loads(out.splitlines()[-1]) for out in outputs.values()], submitted, total)


def by_hand_command(
    program: Program, cluster: Mapping[str, Sequence[str]], task: tuple[str, int], steps: int
) -> tuple[list[str], dict[str, str]]:
    """Return the command of a task and its environment."""
    (job, index), command = task, [sys.executable, str(program.file), f"--steps={steps}"]
    if not program.flags:
        return command, {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})}
    hosts = [f"--{name}_hosts={','.join(addresses)}" for name, addresses in cluster.items()]
    return [*command, *hosts, f"--job_name={job}", f"--task_index={index}"], {}


def by_us(program: Program, steps: int, cluster: Path) -> Took:
    """Run the training with `local run`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "options.json"
        path.write_text(json.dumps(options(program, steps)))
        shutil.copy(program.file, folder)
        command = [sys.executable, "-m", "tf_scheduler", "local", "run", str(path), "--dir", str(cluster), "--json"]
        submitted = time.time()
        with process(command, {"XDG_STATE_HOME": folder}) as run:
            out, _ = run.communicate(timeout=PATIENCE)
        total = time.time() - submitted
        result = json.loads(out)
        assert result["state"] == "succeeded", result["reason"]
        logs = [Path(task["logs"]) / "stdout" for task in result["tasks"] if task["name"].startswith(program.tellers)]
        results = [json.loads(log.read_text().splitlines()[-1]) for log in logs]
        command = [sys.executable, "-m", "tf_scheduler", "history", "show", "last", "--json"]
        with process(command, {"XDG_STATE_HOME": folder}) as asked:
            record = json.loads(asked.communicate(timeout=PATIENCE)[0])
    launched = min(launch["launched"] for launch in record["launches"])
    return took(results, submitted, total, launched)


def took(results: Sequence[dict[str, float]], submitted: float, total: float, launched: float | None = None) -> Took:
    first = min(one["first"] for one in results)
    examples = sum(one["examples_per_second"] for one in results)
    return Took(first - submitted, total, examples, None if launched is None else first - launched)


def options(program: Program, steps: int) -> dict[str, object]:
    small = {"mem": 1024, "disk": 0, "cluster_flags": program.flags}
    return {
        "service": {
            "name": "side-by-side",
            "strategy": program.strategy,
            "job_url": program.file.name,
            "command": f"python {program.file.name} --steps {steps}",
        },
        "chief": {"count": program.count("chief"), "cpus": 0.5, **small},
        "parameter_server": {"count": program.count("ps"), "cpus": 0.3, **small},
        "worker": {"count": program.count("worker"), "cpus": 0.5, **small},
    }


@contextmanager
def process(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Start a process in its own session; kill the session at the end."""
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
    """Return distinct ports: all sockets stay open until all are known."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]


#: Program and way, and what each round took.
Measurements = list[tuple[Program, Mapping[str, list[Took]]]]
BY_HAND, BY_US = "by hand", "local run"


def measured(given: argparse.Namespace) -> tuple[Measurements, str]:
    programs = [training(workers) for workers in given.workers] + [DIGITS] * given.digits
    subprocess.run([sys.executable, "-m", "compileall", "-q", "framework", "executor"], cwd=HOME, check=True)
    measurements: Measurements = []
    with tempfile.TemporaryDirectory() as folder, mesos(Path(folder) / "cluster"):
        short = quick.measure(Path(folder) / "cluster", 3 * given.rounds)
        ways: Mapping[str, Callable[[Program, int], Took]] = {
            BY_HAND: by_hand,
            BY_US: lambda program, steps: by_us(program, steps, Path(folder) / "cluster"),
        }
        for way in ways.values():
            way(programs[0], 10)
        for program in programs:
            rounds: dict[str, list[Took]] = {name: [] for name in ways}
            for number in range(given.rounds):
                for name in (BY_HAND, BY_US) if number % 2 else (BY_US, BY_HAND):
                    rounds[name].append(ways[name](program, given.steps))
                    print(program.name, program.count("worker"), name, rounds[name][-1], flush=True)
            measurements.append((program, rounds))
    return measurements, short


HEAD = (
    *("program", "workers", "started", "first step, s", "ratio", "launch to first step, s"),
    *("total, s", "ratio", "examples/s", "ratio"),
)


def table(measurements: Measurements) -> str:
    """Return the table of medians and of ratios to the same round run by hand."""
    lines: list[tuple[str, ...]] = [HEAD, ("---",) * len(HEAD)]
    for program, rounds in measurements:
        for way, each in rounds.items():
            launched = [one.launched for one in each if one.launched is not None]
            lines.append(
                (
                    *(program.name, str(program.count("worker")), way),
                    *compared("first", ".2f", each, rounds[BY_HAND]),
                    f"{statistics.median(launched):.2f}" if launched else "",
                    *compared("total", ".2f", each, rounds[BY_HAND]),
                    *compared("examples", ",.0f", each, rounds[BY_HAND]),
                )
            )
    return "\n".join(re.sub(r"\|  (?=\|)", "| ", f"| {' | '.join(cells)} |") for cells in lines)


def compared(name: str, form: str, ours: Sequence[Took], bare: Sequence[Took]) -> tuple[str, str]:
    """Return the median and the ratio; an empty ratio for the reference itself."""
    values = [getattr(one, name) for one in ours]
    ratios = [value / getattr(base, name) for value, base in zip(values, bare, strict=True)]
    spread = f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
    return f"{statistics.median(values):{form}}", "" if ours is bare else spread


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2, 4])
    parser.add_argument("--no-digits", dest="digits", action="store_false", help="leave the second program out")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--write", type=Path, metavar="FILE")
    given = parser.parse_args()
    measurements, short = measured(given)
    print(text := table(measurements), short, sep="\n\n")
    if given.write:
        each = f"{given.rounds} rounds of {given.steps} steps of each worker (with digits: of all workers together)"
        load = f"The comparison ran {each}, on {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}."
        page = given.write.read_text()
        for place, written in zip(_PLACES, (f"{load}\n\n{text}", short), strict=True):
            page = place.sub(rf"\1\n{written}\n\n\2", page)
        given.write.write_text(page)


if __name__ == "__main__":
    main()
