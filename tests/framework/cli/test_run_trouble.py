"""`local run` with second signals, frozen agents, dead nodes and killed processes."""

import json
import os
import re
import shutil
import signal
import sys
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from jobs import PATIENCE, UNTIL_KILLED, WORKER_0, agents, options
from kit.freezing import freeze, thaw
from kit.waiting import wait_until
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster
from mesos_local.host import ProcessId
from tf_scheduler.cli.commands import runtime

pytestmark = pytest.mark.usefixtures("real_mesos")

AGENT = AgentSpec("agent-1", "cpus:4;mem:2048;disk:1000;ports:[12100-12199]")


@pytest.fixture
def kept(tmp_path: Path):
    """A cluster that stays up, as `local up` leaves it."""
    with LocalCluster([AGENT], tmp_path / "kept", die_with_parent=True) as cluster:
        yield cluster


def running(process, tasks=3) -> None:
    """Wait until this number of tasks runs."""
    lines = iter(process.stderr.readline, "")
    while tasks:
        tasks -= "is running" in next(lines)


def finished(process):
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def frameworks(cluster):
    return [framework.framework_id for framework in cluster.state().frameworks]


def test_frozen_agent_does_not_block_the_command(start_process, tmp_path: Path, kept) -> None:
    """After the grace period the command exits and names the tasks that it waited for."""
    process = start_process(
        "local", "run", "-v", options(tmp_path, UNTIL_KILLED, worker={"kill_grace": 0.1}), "--dir", kept.directory
    )
    running(process)
    freeze(kept.agents["agent-1"])

    process.send_signal(signal.SIGINT)
    code, out, _ = finished(process)
    thaw(kept.agents["agent-1"])

    assert 4 == code
    assert "small stopped after" in out
    assert "did not stop within" in out


def test_second_signal_exits_and_still_stops_the_tasks(start_process, tmp_path: Path, kept) -> None:
    """The programs ignore SIGTERM; all is gone before their grace period ends."""
    stubborn = "trap '' TERM; while :; do sleep 0.2; done"
    path = options(tmp_path, stubborn, worker={"kill_grace": 60}, parameter_server={"kill_grace": 60})
    process = start_process("local", "run", "-v", path, "--dir", kept.directory)
    running(process)

    process.send_signal(signal.SIGINT)
    lines = iter(process.stderr.readline, "")
    while "stopping: " not in (line := next(lines)):
        pass
    expected = "stopping: ps-0, worker-0 and worker-1 have 60 s to save (Ctrl-C again: leave at once)\n"
    assert expected == line.partition(" ")[2]
    process.send_signal(signal.SIGTERM)
    code, out, _ = finished(process)

    assert 4 == code
    assert "SIGINT received, then SIGTERM: stopped immediately; the processes of the tasks had no time to save" in out
    wait_until(lambda: not frameworks(kept))


def test_dead_node_ends_the_run(start_process, tmp_path: Path) -> None:
    """The cluster belongs to the run. The result names the node; the logs are kept."""
    process = start_process(
        "local", "run", "-v", options(tmp_path, f"echo here; {UNTIL_KILLED}"), "--agents", one(tmp_path)
    )
    running(process)
    (child,) = [pid for pid in children(process.pid) if "agent" in command_line(pid)]

    os.kill(child, signal.SIGKILL)
    code, out, err = finished(process)

    assert 1 == code
    assert "small failed in" in out
    assert "agent-1 has exited" in out
    assert "Traceback" not in err
    (run,) = (tmp_path / "state" / "dcos-tensorflow" / "runs").iterdir()
    assert "agent-1 has exited" in json.loads((run / "result.json").read_text())["reason"]
    assert "here\n" == (run / "logs" / "worker-0" / "stdout").read_text()


def test_checkpoint_dir_is_relative_to_options_file(succeed, tmp_path: Path) -> None:
    """Not to the sandbox of each task, which is removed with the cluster."""
    command = WORKER_0.format('mkdir -p "$CHECKPOINT_DIR" && echo model > "$CHECKPOINT_DIR/model"')

    out = succeed("local", "run", options(tmp_path, command, service={"checkpoint_dir": "models/new"}))
    assert "model\n" == (tmp_path / "models" / "new" / "model").read_text()
    assert f"  written   model (6 bytes) in CHECKPOINT_DIR, {tmp_path}/models/new" in out


def test_report_quotes_last_error_lines_of_failed_task(
    run_process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the secrets of the task."""
    monkeypatch.setenv("VALUE_OF_TOKEN", "known-to-few")
    command = WORKER_0.format("echo the cause is here: $TOKEN >&2; exit 4")
    path = options(tmp_path, command, restart={"max_failures": 0})
    secrets = [{"source": "env:VALUE_OF_TOKEN", "env": "TOKEN"}]
    path.write_text(json.dumps({**json.loads(path.read_text()), "secrets": secrets}))

    code, out, err = run_process("local", "run", path)

    assert 1 == code
    assert "    worker-0 | the cause is here: ********" in out
    assert "known-to-few" not in out + err


HUNGRY = "exec python -c 'import time; held = bytearray(300 << 20); {}'"


def test_memory_is_enforced_if_asked(run_process, tmp_path: Path) -> None:
    """As on a cluster: a failure that counts, and never restart.fail_fast."""
    alone = {"parameter_server": {"count": 0}, "restart": {"max_failures": 1}}
    path = options(tmp_path, HUNGRY.format("time.sleep(1000)"), worker={"count": 1, "mem": 100}, **alone)

    code, out, _ = run_process("local", "run", path, "--enforce-memory")

    assert 1 == code
    first = (
        r"small failed in [\d.]+ s: worker-0 on \S+ failed: out of memory: the task used \d+ MB, but mem is 100 MB; "
    )
    assert re.match(first + r"killed by signal 9 \(SIGKILL\); raise worker\.mem", out), out
    assert "  failed    2 times; failure 2, restart.max_failures is 1 in 3600 s\n" in out


def test_exceeded_memory_is_noticed_at_the_end(run_process, tmp_path: Path) -> None:
    alone = {"parameter_server": {"count": 0}, "worker": {"count": 1, "mem": 100}}
    code, out, _ = run_process("local", "run", options(tmp_path, HUNGRY.format("pass"), **alone))

    assert 0 == code, out
    assert re.search(
        r"  memory    worker-0 3\d\d of 100 MB at most \(not enforced on this machine\)\n  hint      worker-0: ", out
    )


EXCEPTIONS = {
    "first.py": "import os\n\nimport nosuch\n",
    "job/late.py": "def step():\n    raise ValueError(f'nan in gradients of {object()}')\n\n\nstep()\n",
    "words.py": "import sys\n\nx = = 1\n",
}
USAGE = "python -c 'import argparse; argparse.ArgumentParser(\"train.py\").parse_args()' --no-such"


@pytest.mark.parametrize(
    ("packed", "command", "launches", "cause"),
    [
        (
            "none",
            "exec python {}first.py",
            1,
            "ModuleNotFoundError: No module named 'nosuch' ({}first.py:3), exit code 1",
        ),
        ("zip", "python {}words.py", 1, "SyntaxError: invalid syntax ({}words.py:3), exit code 1"),
        (
            "folder",
            "exec python {}nop.py",
            1,
            "can't open file '{}nop.py': [Errno 2] No such file or directory, exit code 2",
        ),
        (
            "folder",
            "python {}job/late.py",
            2,
            "ValueError: nan in gradients of <object object> ({}job/late.py:2), exit code 1",
        ),
        ("none", USAGE, 1, "train.py: error: unrecognized arguments: --no-such, exit code 2"),
        ("zip", "exec pythn {}first.py", 1, "pythn: command not found, exit code 127; hint: did you mean `python`?"),
    ],
)
def test_program_that_can_never_run_ends_job(
    run_process, tmp_path: Path, packed: str, command: str, launches: int, cause: str
) -> None:
    """After one launch of each task, or two with one exception; with one sentence."""
    folder = tmp_path / "program"
    (folder / "job").mkdir(parents=True)
    for name, source in EXCEPTIONS.items():
        (folder / name).write_text(source)
    archive = {"zip": lambda: shutil.make_archive(str(folder), "zip", folder), "folder": lambda: str(folder)}
    service = {"job_url": archive[packed]()} if packed in archive else {}
    prefix = "" if service else f"{folder}/"

    path = options(tmp_path, command.format(prefix), service=service)
    code, out, _ = run_process("local", "run", path, "--json")

    report = json.loads(out)
    assert (1, "failed") == (code, report["state"])
    assert cause.format(prefix) in report["reason"].partition(" (restart.fail_fast)")[0]
    assert 1 == report["reason"].count("exit code")
    record = json.loads(run_process("history", "show", "last", "--json")[1])
    assert launches == max(Counter(item["task"] for item in record["launches"] if item["ended"]).values())
    assert seconds_to_the_end(record, launches) < 5


@pytest.mark.parametrize(
    ("command", "end", "meaning"),
    [
        ("exec python -c {}", "killed by signal 4 (SIGILL)", "instructions that this processor lacks"),
        ("python -c {}; exit $?", "exit code 135 (killed by signal 7 (SIGBUS))", "/dev/shm or a disk is full"),
    ],
)
def test_program_that_crashes_twice_ends_job(run_process, tmp_path: Path, command: str, end: str, meaning: str) -> None:
    """Such ends are not counted, so that the job would restart 20 times."""
    number = re.search(r"signal (\d+)", end)[1]
    crash = command.format(f"'import os; os.kill(os.getpid(), {number})'")
    path = options(tmp_path, crash, {"strategy": "independent"}, parameter_server={"count": 0})

    code, out, _ = run_process("local", "run", path)

    assert 1 == code
    assert re.match(rf"small failed in [\d.]+ s: worker-\d on agent-1 failed: {re.escape(end)}", out), out
    assert re.search(rf"  hint +.*{meaning}", out), out
    assert "  failed    2 times; the same error twice before the first step (restart.fail_fast)" in out


def seconds_to_the_end(record: dict[str, Any], launches: int) -> float:
    """Return the seconds from the first failed end of a task's last launch."""
    failed = defaultdict[str, list[float]](list)
    for item in record["launches"]:
        if item["exit_code"]:
            failed[item["task"]].append(item["ended"])
    first = min(sorted(ends)[launches - 1] for ends in failed.values() if len(ends) == launches)
    return float(record["submitted"] + record["seconds"] - first)


@pytest.mark.usefixtures("real_tensorflow")
def test_program_for_tensorflow_1_ends_job_with_hint(run_process, tmp_path: Path) -> None:
    """After one launch of each of three tasks; the command of the hint is complete.

    Slow: three launches import TensorFlow.
    """
    source = "import tensorflow as tf\nfrom tensorflow.examples.tutorials.mnist import input_data\n"
    (tmp_path / "train.py").write_text(source)
    sizes = {name: {"mem": 500} for name in ("worker", "parameter_server")}

    code, out, error = run_process(
        "local", "run", options(tmp_path, "python train.py", {"job_url": "train.py"}, **sizes)
    )

    assert 1 == code, error
    assert "No module named 'tensorflow.examples' (train.py:2), exit code 1" in out.splitlines()[0]
    hint = re.search(r"hint\b.*written for TensorFlow 1: `dcos-tensorflow (.+?)` installs it", out)
    assert hint is not None, out
    with runtime.create.make_context("create", hint[1].split()[2:]) as context:
        assert {"name": "tf1.15", "tensorflow": "1.15", "python": "3.7"}.items() <= context.params.items()
    record = json.loads(run_process("history", "show", "last", "--json")[1])
    assert ["ps-0", "worker-0", "worker-1"] == sorted(launch["task"] for launch in record["launches"])
    assert seconds_to_the_end(record, 1) < 5


FIT = """import sys
import tensorflow as tf

sys.modules["tf_keras"] = None
strategy = tf.distribute.MultiWorkerMirroredStrategy()
data = tf.data.Dataset.from_tensor_slices((tf.random.normal((64, 4)), tf.zeros((64,), tf.int32))).batch(16)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
    model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(data)
"""
SET = r'add "environment": {"TF_USE_LEGACY_KERAS": "1"} to "service" \(--set service.environment.\w+=1\)'


@pytest.mark.usefixtures("real_tensorflow")
def test_keras_3_ends_job_with_remedy(run_process, tmp_path: Path) -> None:
    """After one launch of each worker, with TensorFlow 2.16 or newer."""
    pytest.importorskip("tf_keras")
    (tmp_path / "train.py").write_text(FIT)
    service = {"strategy": "multi_worker_mirrored", "job_url": "train.py"}
    sizes = {"parameter_server": {"count": 0}, "worker": {"mem": 500}}
    path = options(tmp_path, "python train.py", service=service, **sizes)

    code, out, _ = run_process("local", "run", path)

    first = out.splitlines()[0]
    sentence = rf"Model.fit of Keras 3\.\d+ does not work with MultiWorkerMirroredStrategy\. tf_keras .*: {SET}"
    assert 1 == code
    assert re.fullmatch(rf"small failed in [\d.]+ s: worker-\d: train.py:10: {sentence}, exit code 1", first), out
    record = json.loads(run_process("history", "show", "last", "--json")[1])
    assert ["worker-0", "worker-1"] == sorted(launch["task"] for launch in record["launches"])


CRASHES = """import os
import sys
import time

import tf_executor


def train_step(step):
    tf_executor.report(step=step, total=700)
    raise ValueError("nan in gradients")


if os.environ["TASK_NAME"] != "worker-0":
    time.sleep(3600)
train_step(30)
"""


@pytest.mark.parametrize("packed", ["zip", "none"])
def test_crash_in_training_is_reported_once(run_process, tmp_path: Path, packed: str) -> None:
    """With its restarts; the cause comes first, then where it happened."""
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "train.py").write_text(CRASHES)
    archive = {"zip": lambda: shutil.make_archive(str(folder), "zip", folder), "folder": lambda: str(folder)}
    service = {"job_url": archive[packed]()} if packed in archive else {}
    prefix = "" if service else f"{folder}/"

    path = options(tmp_path, f"python {prefix}train.py", service=service, restart={"backoff": 0.0})
    code, out, _ = run_process("local", "run", path)

    first, failed, where = out.splitlines()[:3]
    assert 1 == code
    assert re.fullmatch(
        rf"small failed in [\d.]+ s: worker-0: ValueError: nan in gradients \({prefix}train.py:10\), exit code 1", first
    )
    assert failed == "  failed    4 times, at steps 30, 30, 30, 30; failure 4, restart.max_failures is 3 in 3600 s"
    assert where == f'  where     {prefix}train.py:10 in train_step: raise ValueError("nan in gradients")'
    assert 1 == out.count("ValueError: ")


def test_failed_fetch_is_explained(run_process, tmp_path: Path) -> None:
    """With the fetcher's own words, from the task's stderr, but without the password."""
    service = {"job_url": "http://me:hunter2@127.0.0.1:9/train.py"}

    code, out, _ = run_process("local", "run", options(tmp_path, "true", service=service, restart={"max_failures": 0}))

    assert 1 == code
    cause = r"cannot fetch http://me:\*+@127.0.0.1:9/train.py: <urlopen error"
    assert re.match(rf"small failed in [\d.]+ s: \S+ on \S+ failed: the agent {cause}", out)
    assert re.search(rf"\| .*{cause}", out)


def test_killed_scheduler_is_restarted_and_continues(
    start_process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets only the variables of a service."""
    monkeypatch.setenv("LEAK", "1")
    process = start_process("local", "run", options(tmp_path, UNTIL_KILLED), "--agents", one(tmp_path), "--json")
    first = scheduler_of(tmp_path)
    variables = environment(first)
    running_tasks = wait_until(lambda: len(logged(tmp_path, "is running")) == 3)

    os.kill(first, signal.SIGKILL)
    second = wait_until(lambda: {scheduler_of(tmp_path)} - {first})
    wait_until(lambda: len(logged(tmp_path, "subscribed as framework")) == 2)
    process.send_signal(signal.SIGINT)
    code, out, err = finished(process)

    assert running_tasks
    assert second
    assert ("127.0.0.1", True) == (variables["HOST"], variables["PORT_API"].isdecimal())
    assert "LEAK" not in variables
    assert 4 == code, err
    report = json.loads(out)
    assert ("stopped", "SIGINT received") == (report["state"], report["reason"])
    assert [("killed", 1)] * 3 == [(task["state"], task["generation"]) for task in report["tasks"]]
    assert 3 == len(logged(tmp_path, "is placed on"))


def test_killed_command_leaves_no_scheduler(start_process, run_process, tmp_path: Path, kept) -> None:
    """Mesos kills the tasks. The history shows the run as lost."""
    process = start_process("local", "run", "-v", options(tmp_path, UNTIL_KILLED), "--dir", kept.directory)
    running(process)
    scheduler = ProcessId.of(scheduler_of(tmp_path))
    (before,) = json.loads(run_process("history", "--json")[1])

    process.kill()
    process.wait(PATIENCE)
    (after,) = json.loads(run_process("history", "--json")[1])
    record = json.loads(run_process("history", "show", "last", "--json")[1])

    assert ("running", "lost", after["id"]) == (before["state"], after["state"], before["id"])
    assert {"ps-0", "worker-0", "worker-1"} == {launch["task"] for launch in record["launches"]}
    assert "sleep 1000" in record["options"]["service"]["command"]
    scheduler.wait(PATIENCE)
    assert not scheduler.alive()


#: The ps listens after the worker's fifth launch; the worker ends at once if it cannot connect.
LATE_PS = """\
import json, os, socket, sys, time
from pathlib import Path
launches = Path(sys.argv[1])
host, port = json.loads(os.environ["TF_CONFIG"])["cluster"]["ps"][0].split(":")
if os.environ["TASK_NAME"] == "ps-0":
    while not launches.exists() or launches.stat().st_size < 5:
        time.sleep(0.05)
    server = socket.create_server((host, int(port)))
    while True:
        server.accept()
with launches.open("a") as file:
    file.write("x")
socket.create_connection((host, int(port)))
"""


def test_late_parameter_server_uses_up_no_restarts(run_process, tmp_path: Path, kept) -> None:
    """The worker's errors do not count while its peer is not up."""
    (tmp_path / "train.py").write_text(LATE_PS)
    path = options(
        tmp_path,
        f"python train.py {tmp_path}/launches",
        {"job_url": "train.py", "python": sys.executable},
        worker={"count": 1},
        restart={"max_failures": 2, "backoff": 0.05},
    )

    code, out, err = run_process("local", "run", path, "--json", "--dir", kept.directory)

    assert (0, "succeeded") == (code, json.loads(out)["state"]), err
    assert (tmp_path / "launches").stat().st_size >= 5


def scheduler_of(folder):
    """The process id of the scheduler that runs below `folder`, as soon as it does."""
    return wait_until(lambda: next(schedulers(folder), None))


def schedulers(folder):
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            named = "scheduler" in command_line(entry.name)
            if named and (entry / "cwd").readlink().is_relative_to(folder):
                yield int(entry.name)


def environment(pid):
    entries = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def logged(folder, text):
    """Lines of the log of the only run below `folder`."""
    logs = (folder / "state" / "dcos-tensorflow" / "runs").glob("*/logs/scheduler.log")
    return [line for log in logs for line in log.read_text().splitlines() if text in line]


def one(folder):
    return agents(folder, ("agent-1", "cpus:4;mem:2048;disk:1000"))


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_line(pid):
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def test_output_replaced_by_links_and_pipes_is_not_read(run_process, tmp_path: Path) -> None:
    """The command may read files that the task's user may not, and a pipe blocks it."""
    secret = tmp_path / "secret"
    secret.write_text("readable only by the user of the command\n")
    program = (
        f"rm stdout stderr; mkfifo stdout; for name in stderr executor.log.1; do ln -s {secret} $name; done; exit 3"
    )
    job = options(tmp_path, program, {"strategy": "independent"}, worker={"count": 1}, restart={"fail_fast": True})
    job.write_text(json.dumps({**json.loads(job.read_text()), "parameter_server": {"count": 0}}))

    code, out, errors = run_process("local", "run", job, "--json", "--follow", "worker-0")

    report = json.loads(out)
    assert 1 == code, errors
    kept = [path for path in Path(report["run"]).rglob("*") if path.is_file() or path.is_symlink()]
    texts = [out, errors, *(path.read_text(errors="replace") for path in kept)]
    assert not [text for text in texts if "readable only" in text]
    assert "readable only" not in "".join(run_process("logs", "--run", "last", "--file", "executor.log.1")[1:])
