"""`local run` on a real terminal, emulated by pyte, and in a pipe."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyte
import pytest

from jobs import PATIENCE
from kit.commands import command_line

pytestmark = pytest.mark.usefixtures("real_mesos")

#: Two workers that do what the test allows by files: listen, train, fail once, stop late, end.
PROGRAM = """
import json, os, signal, socket, sys, time
from pathlib import Path
from threading import Thread
from tf_executor.reporting import report

gate, name = Path(GATE), os.environ["TASK_NAME"]

def strategy():
    import tensorflow as tf  # so that the sources have the class; nothing trains
    return tf.distribute.MultiWorkerMirroredStrategy()

def wait(word, **values):
    while True:
        is_open = (gate / word).exists()
        if values:  # also if the other worker has opened the gate before this one starts
            report(total=70, accuracy=0.9967, examples=64, of="job", epoch=6, epochs=10, **values)
        if is_open:
            return
        time.sleep(0.02)

def serve():
    while True:  # as a gRPC server, which sends the SETTINGS frame of HTTP/2
        server.accept()[0].sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))

def stop(*_):
    wait("stop")
    os._exit(143)

signal.signal(signal.SIGTERM, stop)
config = json.loads(os.environ["TF_CONFIG"])
host, port = config["cluster"]["worker"][config["task"]["index"]].split(":")
wait("serve-" + name)
server = socket.create_server((host, int(port)))
Thread(target=serve, daemon=True).start()
wait("train")
print("30/70 [========>.....] - loss: 0.0331 - accuracy: 0.9964", flush=True)
if not (gate / "failed").exists():
    wait("fail", step=30, loss=1 / 30)
    if name == "worker-1":
        (gate / "failed").touch()
        raise ValueError("nan in the gradients of the first of all layers of this model")
    wait("never")
wait("end", step=70, loss=1 / 70)
"""
#: Line of the program that fails, from 1.
LINE = next(number for number, line in enumerate(PROGRAM.splitlines(), 1) if "raise " in line)


def plain(picture: Iterable[str]) -> str:
    return " ".join(" ".join(picture).split())


class Terminal:
    """A command on a terminal of `columns` x `rows`."""

    def __init__(self, command: list[str], columns: int, rows: int) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        #: All different contents that the screen has had.
        self.pictures: list[tuple[str, ...]] = []
        self._terminal, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color"}
        for name in ("NO_COLOR", "COLUMNS", "LINES"):  # xdist sets the width
            environment.pop(name, None)
        self.process = subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)

    def until(self, *texts: str) -> tuple[str, ...]:
        """Return the first picture with all texts, however the lines are folded."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if select.select([self._terminal], [], [], 0.1)[0]:
                try:
                    self._stream.feed(os.read(self._terminal, 65536))
                except OSError:  # the command has ended
                    break
            shown = tuple(line.rstrip() for line in self.screen.display)
            if not self.pictures or self.pictures[-1] != shown:
                self.pictures.append(shown)
            if all(text in plain(shown) for text in texts):
                return shown
        raise AssertionError(f"no {texts} on:\n" + "\n".join(self.pictures[-1]))

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._terminal)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """Folder in which files let the program go on."""
    (tmp_path / "gate").mkdir()
    return tmp_path / "gate"


@pytest.fixture
def options_file(tmp_path: Path, gate: Path) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM.replace("GATE", repr(str(gate))))
    service = {
        "name": "mnist",
        "strategy": "multi_worker_mirrored",
        "job_url": "train.py",
        "command": "python train.py",
    }
    worker = {"count": 2, "cpus": 0.1, "mem": 64, "disk": 0, "kill_grace": 60}
    path = tmp_path / "options.json"
    path.write_text(json.dumps({"service": service, "worker": worker, "restart": {"backoff": 0}}))
    return path


def go(gate: Path, *words: str) -> None:
    for word in words:
        (gate / word).touch()


def test_each_state_is_drawn_whole(gate: Path, options_file: Path) -> None:
    """Each word of a job appears, and nothing is cut but output, even at 60 columns."""
    with closing(Terminal(command_line("local", "run", options_file), 60, 30)) as shown:
        shown.until("mnist IMPORTING TensorFlow runs in 0 of 2 tasks", "worker-1 IMPORTING")
        go(gate, "serve-worker-0")
        shown.until("TensorFlow runs in 1 of 2 tasks", "worker-0 CONNECTING")
        go(gate, "serve-worker-1", "train")
        training = shown.until("mnist TRAINING epoch 6 of 10", "43 %", "30 of 70", "loss 0.03333", "accuracy 0.9967")
        go(gate, "fail")
        why = f"ValueError: nan in the gradients of the first of all layers of this model (train.py:{LINE})"
        failed = shown.until(
            "RESTARTING",
            f"1 of 3: worker-1: {why}",
            "at step 30 of 70 (and worker-0 with it); again when worker-0 has stopped",
        )
        go(gate, "stop")
        shown.until("mnist TRAINING", "1 restart", "70 of 70")
        go(gate, "end")
        end = shown.until("mnist succeeded in", "next: dcos-tensorflow history show")
        assert 0 == shown.process.wait(PATIENCE)

    (address,) = {match for line in training for match in re.findall(r"http://127\.0\.0\.1:\d+/(?=$)", line)}
    assert any(f"{address}#token=" in "".join(picture) for picture in shown.pictures), "once, to be copied"
    drawings = [picture for picture in shown.pictures if not any("succeeded in" in line for line in picture)]
    cut = {line for picture in drawings for line in picture if "…" in line and " | " not in line}
    assert set() == cut
    assert not any("COMPLETE" in line or "killed" in line for picture in shown.pictures for line in picture)
    assert "70 of 70, 100 %, epoch 6 of 10, loss 0.01429, accuracy 0.9967" in plain(end), "\n".join(end)
    assert f"restart 1: worker-1: {why}, exit code 1, at step 30" in plain(end)
    assert any(address in line for line in failed)


def test_narrow_terminal_has_job_and_step(gate: Path, options_file: Path) -> None:
    """Below 40 columns there is only room for the job, what it does, step and loss."""
    go(gate, "serve-worker-0", "serve-worker-1", "train", "stop")
    with closing(Terminal(command_line("local", "run", options_file), 39, 20)) as shown:
        picture = shown.until("mnist TRAINING", "step 30 loss 0.03333")
        go(gate, "fail", "end")
        shown.until("next: dcos-tensorflow history show")
        assert 0 == shown.process.wait(PATIENCE)
    begin = next(number for number, line in enumerate(picture) if "TRAINING" in line)
    assert ["mnist  TRAINING", "step 30  loss 0.03333"] == [line for line in picture[begin:] if line]


def test_pipe_has_a_time_on_each_line(start_process, gate: Path, options_file: Path) -> None:
    """The same facts as on a terminal, without colours, at least every `--every` s."""
    process = start_process("local", "run", options_file, "--every", "0.5")
    lines, times = [], []

    def until(text: str) -> Any:
        for line in iter(process.stderr.readline, ""):
            lines.append(line.rstrip("\n"))
            times.append(time.monotonic())
            if text in line:
                return line
        raise AssertionError("\n".join(lines))

    until("importing: worker-0 on agent-1 and worker-1 on agent-1")
    go(gate, "serve-worker-0", "serve-worker-1", "train")
    until("training: first step after ")
    assert until("step 30 of 70, 43 %, epoch 6 of 10, loss 0.03333, accuracy 0.9967")
    go(gate, "fail")
    restart = until("restarting: 1 of 3: worker-1: ValueError: nan in the gradients")
    assert restart.endswith("at step 30 of 70 (and worker-0 with it)\n")
    go(gate, "stop")
    until("training again: step ")
    go(gate, "end")
    until("succeeded: ")
    out, err = process.communicate(timeout=PATIENCE)

    lines += err.splitlines()
    assert 0 == process.returncode
    assert [] == [line for line in lines if not re.match(r"\d\d:\d\d:\d\d \S", line) or "\x1b" in line]
    assert re.match(r"\S+ mnist: 2 workers, multi_worker_mirrored; logs: /", lines[2])
    assert re.match(r"\S+ page: http://127\.0\.0\.1:\d+/#token=", lines[3])
    assert re.match(r"mnist succeeded in [\d.]+ s", out)
    began = next(number for number, line in enumerate(lines) if " importing" in line)
    gaps = [after - before for before, after in zip(times[began:], times[began + 1 :], strict=False)]
    assert max(gaps) < PATIENCE / 2, "not a bound of time: a hang"
