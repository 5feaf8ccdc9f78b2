"""Benchmark of carried checkpoints: their cost beside a local folder.

`BENCHMARK_ROUNDS=7 pytest -s tests/benchmarks/test_carried_checkpoints.py` prints the numbers
of docs/evidence/performance.md.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kit.s3_server import BUCKET, run_s3_server
from tf_executor.user import storage

tensorflow = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.usefixtures("real_storage")

#: Rounds of four turns, and seconds of a turn; the program saves once a second.
ROUNDS, SECONDS = int(os.environ.get("BENCHMARK_ROUNDS", "2")), 4.0


class Training:
    """A training on one thread that saves 3.2 MB once a second."""

    def __init__(self, folder: Path) -> None:
        tensorflow.config.threading.set_intra_op_parallelism_threads(1)
        tensorflow.config.threading.set_inter_op_parallelism_threads(1)
        self.images = tensorflow.random.normal([512, 784], seed=1)
        weights = {str(size): tensorflow.Variable(tensorflow.random.normal([784, size])) for size in (512, 500)}
        self.manager = tensorflow.train.CheckpointManager(tensorflow.train.Checkpoint(**weights), str(folder), 2)
        self.weights = tuple(weights.values())
        self.step = tensorflow.function(self._change)
        self.step()

    def _change(self) -> None:
        for weight in self.weights:
            weight.assign_add(0.01 * weight * tensorflow.reduce_mean(self.images @ weight))

    def turn(self) -> float:
        """Train for SECONDS; return the steps per second."""
        begin, steps, saved = time.monotonic(), 0, 0
        while (seconds := time.monotonic() - begin) < SECONDS:
            self.step()
            steps += 1
            if seconds >= saved:
                self.manager.save()
                saved += 1
        return steps / seconds


def test_carried_checkpoints_do_not_slow_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The carrier is stopped in every other turn; the S3 server runs here, too."""
    with run_s3_server() as server:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret)
        monkeypatch.setenv("PYTHONPATH", str(Path(storage.__file__).parents[2]))
        options = {"endpoint_url": server.address}
        settings = {"mode": "carried", "role": "writer", "every": 1.0, "keep": 2, "grace": 10.0, "options": options}
        settings |= {"launched_at": 1.0, "url": f"s3://{BUCKET}/run", "task_id": "t"}
        monkeypatch.setenv(storage.SETTINGS_VARIABLE, json.dumps(settings))
        command = [sys.executable, "-m", "tf_executor.storage"]
        subprocess.run([*command, "bring"], cwd=tmp_path, check=True)
        training = Training(tmp_path / storage.LOCAL)
        with subprocess.Popen(
            [*command, "carry"], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as carrier:
            try:
                training.manager.save()
                assert carrier.stdout is not None
                assert b"stored ckpt-1" in carrier.stdout.readline()
                started = processor_time(carrier.pid)
                ratios = [ratio_of_a_round(training, carrier) for _ in range(ROUNDS)]
                spent = processor_time(carrier.pid) - started
                output = carrier.communicate(b"1 0\n")[0].decode()
            finally:
                carrier.kill()
    stored = output.count("stored ckpt-")
    assert f"stored {Path(training.manager.latest_checkpoint).name} " in output
    speed = f"median {statistics.median(ratios):.4g}, least {min(ratios):.4g}"
    print(f"\nsteps per second relative to a local folder: {speed}; {stored} checkpoints stored")
    print(f"processor seconds of the carrier: {started:.3g} until its first round, {spent / stored:.3g} per checkpoint")


def processor_time(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ratio_of_a_round(training: Training, carrier: subprocess.Popen[bytes]) -> float:
    """Return the steps with a running carrier, relative to those with a stopped one."""
    speeds: dict[signal.Signals, float] = dict.fromkeys((signal.SIGCONT, signal.SIGSTOP), 0.0)
    for state in (signal.SIGCONT, signal.SIGSTOP, signal.SIGSTOP, signal.SIGCONT):
        carrier.send_signal(state)
        speeds[state] += training.turn()
    carrier.send_signal(signal.SIGCONT)
    return speeds[signal.SIGCONT] / speeds[signal.SIGSTOP]
