"""Benchmark of the executor: size, start, memory, idle time, output and training.

`BENCHMARK_ROUNDS=9 pytest -s tests/benchmarks/test_executor.py` prints the numbers of
docs/evidence/performance.md. Each ratio compares two measurements of the same run, so that other load affects both.
Times are printed, not asserted.
"""

from __future__ import annotations

import os
import re
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import pytest

from kit.shared import SharedServers
from task_launcher import TaskLauncher, shared
from tf_executor.launch import environment as around_environment
from tf_scheduler.zipapp_builder import build_bundle

ROUNDS = int(os.environ.get("BENCHMARK_ROUNDS", "2"))
#: Number of one-second turns of each program of a pair.
TURNS = 4 if ROUNDS < 3 else 20
TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_bundle(tmp_path_factory.mktemp("bundle") / "tf_executor.pyz")


@pytest.fixture
def scheduler(module_servers: SharedServers, bundle: Path) -> TaskLauncher:
    return shared(module_servers, bundle)


def print_numbers(what: str, **numbers: float) -> None:
    print(f"\n{what}: " + ", ".join(f"{name} {value:.4g}" for name, value in numbers.items()))


def test_size_of_the_bundle(bundle: Path) -> None:
    """Every agent fetches it for every task."""
    size = bundle.stat().st_size
    print_numbers("bundle", kilobytes=size / 1000)
    assert size < 5_000_000


@pytest.mark.usefixtures("real_mesos")
def test_start(scheduler: TaskLauncher) -> None:
    """Measure from the container's command to the executor's SUBSCRIBE (agent's log)."""
    values = [started(scheduler, f"start-{number}") for number in range(ROUNDS)]
    bare = [seconds_of(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True)) for _ in range(ROUNDS)]
    print_numbers("start, milliseconds", median=1000 * statistics.median(values), least=1000 * min(values))
    print_numbers("python -c pass, milliseconds", median=1000 * statistics.median(bare), least=1000 * min(bare))


def started(scheduler: TaskLauncher, name: str) -> float:
    scheduler.launch(name, "true")
    scheduler.statuses("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert 0 == scheduler.executor_exit()
    log = (scheduler.cluster.directory / "logs" / "agent-1.log").read_text()
    container = re.findall(rf"Launching container (\S+) for executor '{name}'", log)[-1]
    begin = moment(log, rf"{container} from FETCHING to RUNNING")
    return moment(log, rf"Received Subscribe request for HTTP executor '{name}'") - begin


def moment(log: str, pattern: str) -> float:
    """Return the time of the Mesos log line `I1121 03:59:28.206240 ...` (month, day)."""
    (stamp,) = re.findall(rf"^.(\d{{4}} [\d:.]+) .*{pattern}", log, re.MULTILINE)
    year = datetime.now(timezone.utc).year
    return datetime.strptime(f"{year}{stamp}", "%Y%m%d %H:%M:%S.%f").replace(tzinfo=timezone.utc).timestamp()


def seconds_of(run: Callable[[], object]) -> float:
    begin = time.monotonic()
    run()
    return time.monotonic() - begin


@pytest.mark.usefixtures("real_mesos")
def test_memory_and_idle_time(scheduler: TaskLauncher, tmp_path: Path) -> None:
    """Measure an idle task with all features on."""
    os.mkfifo(tmp_path / "ready")
    command = f"echo ready > {tmp_path}/ready; sleep {3 * ROUNDS}; echo ready > {tmp_path}/ready; sleep 3600"
    scheduler.launch("idle", command, event_folders=(".",), pre_command="true", post_command="true")
    scheduler.statuses("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING")
    (tmp_path / "ready").read_text()
    pid = scheduler.executor_pid("idle")
    begin, before = time.monotonic(), processor_time(pid)
    (tmp_path / "ready").read_text()
    took, spent = time.monotonic() - begin, processor_time(pid) - before
    resident = int(re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[0]) / 1000
    print_numbers("idle", megabytes=resident, processor_percent=100 * spent / took)
    scheduler.call("KILL", task_id={"value": "idle"}, agent_id={"value": scheduler.agent_id})
    scheduler.statuses("TASK_KILLING", "TASK_KILLED")
    assert 0 == scheduler.executor_exit()
    assert resident < 40


def processor_time(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


WRITER = """
import sys, time
line = b"step 123456: loss 0.123456, accuracy 0.987654, 12345.6 examples/s, a line as programs print it\\n" * 100
begin = time.monotonic()
for _ in range(2000 * {size}):
    sys.stdout.buffer.write(line)
sys.stdout.flush()
print("took", time.monotonic() - begin, file=sys.stderr)
"""


@pytest.mark.usefixtures("real_mesos")
def test_output(scheduler: TaskLauncher, tmp_path: Path) -> None:
    """Compare large output through the executor's rotation with output to a file."""
    (tmp_path / "write.py").write_text(WRITER.format(size=ROUNDS))
    size = 2000 * ROUNDS * 100 * 91 / 1e6
    command = f"{shlex.quote(sys.executable)} {tmp_path}/write.py"
    ratios = []
    for number in range(ROUNDS):
        ours = under_us(scheduler, f"output-{number}", command, tmp_path)
        hand = by_hand(command, tmp_path)
        ratios.append(hand / ours)
        kept = [path.stat().st_size for path in scheduler.sandbox(f"output-{number}").glob("stdout*")]
        assert all(size <= 32 << 20 for size in kept)
        assert min(size * 1e6, 4 * (32 << 20)) * 0.7 < sum(kept)
        print_numbers(f"output of {size:.0f} MB, MB/s", ours=size / ours, hand=size / hand)
    print_numbers("output", ratio=statistics.median(ratios))


def under_us(scheduler: TaskLauncher, name: str, command: str, folder: Path, **fields: object) -> float:
    """Return the seconds that the program measured."""
    scheduler.launch(name, f"{command} 2> {folder}/measured", **fields)
    scheduler.statuses("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert 0 == scheduler.executor_exit()
    return measured(folder)


def by_hand(command: str, folder: Path, **environment: str) -> float:
    with (folder / "output").open("wb") as out, (folder / "measured").open("wb") as err:
        subprocess.run(command, shell=True, stdout=out, stderr=err, env={**os.environ, **environment}, check=True)
    return measured(folder)


def measured(folder: Path) -> float:
    return float(re.findall(r"took ([\d.]+)", (folder / "measured").read_text())[0])


TRAIN = """
import os, sys, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
import tf_executor
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
images, labels = tf.random.normal([512, 784], seed=1), tf.random.uniform([512], maxval=10, dtype=tf.int64, seed=1)
weights = [tf.Variable(tf.random.normal(shape, stddev=0.05, seed=2)) for shape in ([784, 512], [512, 10])]

@tf.function
def step():
    with tf.GradientTape() as tape:
        logits = tf.nn.relu(images @ weights[0]) @ weights[1]
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    for weight, gradient in zip(weights, tape.gradient(loss, weights)):
        weight.assign_sub(0.01 * gradient)
    return loss

def executor():
    # Processor time of the parent executor; 0 without an executor.
    pid = os.getpid()
    while pid > 1:
        fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
        if b"tf_executor.pyz" in open(f"/proc/{pid}/cmdline", "rb").read():
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        pid = int(fields[1])
    return 0.0

def turn(number, seconds):
    # Alternate with the other program, so that only one program runs at a time.
    open(os.environ["GO"]).read()
    begin, cpu, above = time.monotonic(), time.process_time(), executor()
    while time.monotonic() < begin + seconds:
        number += 1
        loss = step()
        tf_executor.report(step=number, loss=loss, examples=512 * number)
        if number % 50 == 0:
            print("step", number, "loss", float(loss), flush=True)
            losses.append(float(loss))
    spent = time.process_time() - cpu, executor() - above, time.monotonic() - begin
    open(os.environ["READY"], "w").write("ready")
    return number, *spent

losses = []
step()
open(os.environ["READY"], "w").write("ready")
number, spent = 0, [0.0, 0.0, 0.0]
for _ in range({turns}):
    number, *more = turn(number, 1.0)
    spent = [one + other for one, other in zip(spent, more)]
cpu, above, seconds = spent
print("steps", number, "seconds", seconds, "processor", cpu, "executor", above, "loss", losses[0], file=sys.stderr)
"""


@pytest.mark.usefixtures("real_tensorflow")
def test_training(scheduler: TaskLauncher, tmp_path: Path) -> None:
    """Compare training with and without the executor, alternating every second."""
    (tmp_path / "train.py").write_text(TRAIN.replace("{turns}", str(TURNS)))
    for name in ("ours", "hand"):
        os.mkfifo(tmp_path / f"ready-{name}")
        os.mkfifo(tmp_path / f"go-{name}")
    pairs = [trained(scheduler, f"train-{number}", tmp_path) for number in range(ROUNDS)]
    clock = [ours.steps_per_second / hand.steps_per_second for ours, hand in pairs]
    processor = [ours.steps_per_processor_second / hand.steps_per_processor_second for ours, hand in pairs]
    print_numbers("training, ours by hand's: steps per second", median=statistics.median(clock), least=min(clock))
    print_numbers(
        "steps per processor second, executor included", median=statistics.median(processor), least=min(processor)
    )


@dataclass(frozen=True)
class Trained:
    steps: float
    seconds: float
    #: Processor seconds of the program, and of the executor above it.
    processor: float
    executor: float
    #: After 50 steps.
    loss: float

    @property
    def steps_per_second(self) -> float:
        return self.steps / self.seconds

    @property
    def steps_per_processor_second(self) -> float:
        return self.steps / (self.processor + self.executor)

    @classmethod
    def read(cls, path: Path) -> Trained:
        (values,) = re.findall(r"steps (\S+) seconds (\S+) processor (\S+) executor (\S+) loss (\S+)", path.read_text())
        return cls(*map(float, values))


def pipes(folder: Path, name: str) -> dict[str, str]:
    return {"READY": str(folder / f"ready-{name}"), "GO": str(folder / f"go-{name}")}


def trained(scheduler: TaskLauncher, name: str, folder: Path) -> tuple[Trained, Trained]:
    """Return the results with and without the executor."""
    command = f"exec {shlex.quote(sys.executable)} {folder}/train.py 2> {folder}/"
    scheduler.launch(name, f"{command}ours", environment=pipes(folder, "ours"), event_folders=(".",))
    mine = {
        "PYTHONPATH": str(around_environment.write_user_package(str(folder))),
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONUNBUFFERED": "1",
    }
    environment = {**os.environ, **mine, **pipes(folder, "hand")}
    with (
        (folder / "output").open("wb") as out,
        subprocess.Popen(f"{command}hand", shell=True, stdout=out, env=environment) as process,
    ):
        scheduler.statuses("TASK_STARTING", "TASK_RUNNING")
        try:
            for one in ("ours", "hand"):
                assert "ready" == (folder / f"ready-{one}").read_text()
            for number in range(2 * TURNS):
                one = ("ours", "hand", "hand", "ours")[number % 4]
                with (folder / f"go-{one}").open("w"):
                    pass
                assert "ready" == (folder / f"ready-{one}").read_text()
            assert 0 == process.wait()
        finally:
            process.kill()
    scheduler.statuses("TASK_FINISHED")
    assert 0 == scheduler.executor_exit()
    ours, hand = Trained.read(folder / "ours"), Trained.read(folder / "hand")
    assert hand.loss == pytest.approx(ours.loss, rel=1e-3)
    print_numbers("training, steps", ours=ours.steps, hand=hand.steps, executor_processor_seconds=ours.executor)
    return ours, hand
