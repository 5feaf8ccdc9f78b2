"""TensorFlow 1.15, 2.20 and the newest as concurrent services on a real Mesos.

Their runtimes take 2.5 GB. TensorFlow 1.15 needs Python 3.7.
"""

import json
import shutil
import sys
from pathlib import Path

import pytest

from jobs import PATIENCE, options
from own_runtimes import need

pytestmark = [pytest.mark.usefixtures("real_versions"), pytest.mark.timeout(1200)]

#: Name of the runtime -> arguments that create it.
RUNTIMES = {
    "test-1.15": ("--tensorflow", "1.15", "--python", "3.7"),
    "test-2.20": ("--tensorflow", "2.20"),
}
#: Between-graph replication as the tutorials of TensorFlow 1 have it; worker 0 waits until all three services train.
PROGRAM = """\
import json, os, sys, time
import tensorflow as tf
print(tf.__version__, flush=True)
tf1 = tf.compat.v1
tf1.disable_eager_execution()
config = json.loads(os.environ["TF_CONFIG"])
job, index = config["task"]["type"], config["task"]["index"]
server = tf1.train.Server(tf1.train.ClusterSpec(config["cluster"]), job_name=job, task_index=index)
if job == "ps":
    server.join()
with tf1.device(tf1.train.replica_device_setter(cluster=config["cluster"])):
    x = tf1.get_variable("x", initializer=5.0, use_resource=False)
    step = tf1.train.get_or_create_global_step()
    train = tf1.train.GradientDescentOptimizer(0.1).minimize(tf.square(x), global_step=step)
with tf1.train.MonitoredTrainingSession(server.target, is_chief=True) as session:
    session.run(train)
    open(sys.argv[1] + "." + sys.argv[2], "w").close()
    while len([name for name in os.listdir(os.path.dirname(sys.argv[1])) if name.startswith("up.")]) < 3:
        time.sleep(0.1)
    for _ in range(50):
        session.run(train)
    print("x", abs(session.run(x)) < 0.01, flush=True)
"""


@pytest.fixture(scope="module", autouse=True)
def _made() -> None:
    for name, content in RUNTIMES.items():
        need(name, *content)


def test_three_versions_of_tensorflow_train_together(run_process, start_process, tmp_path: Path) -> None:
    """Each service sees its own TensorFlow, and all of them ran at the same time.

    Slow: three services import TensorFlow at the same time.
    """
    folder, meeting = ("--dir", tmp_path / "cluster"), tmp_path / "meeting"
    meeting.mkdir()
    (tmp_path / "train.py").write_text(PROGRAM)
    code, _, err = run_process("local", "up", *folder)
    assert 0 == code, err
    try:
        jobs = {}
        for name, python in (("one", "runtime:test-1.15"), ("two", "runtime:test-2.20"), ("today", sys.executable)):
            (tmp_path / name).mkdir()
            shutil.copy(tmp_path / "train.py", tmp_path / name)
            service = {"name": name, "python": python, "job_url": "train.py"}
            path = options(tmp_path / name, f"python train.py {meeting}/up {name}", service, worker={"count": 1})
            jobs[name] = start_process("local", "run", path, *folder, "--json")
        outputs = {name: process.communicate(timeout=PATIENCE * 2) for name, process in jobs.items()}
    finally:
        run_process("local", "down", *folder)

    seen = {}
    for name, (out, err) in outputs.items():
        assert 0 == jobs[name].returncode, f"{name}: {out} {err}"
        (logs,) = [task["logs"] for task in json.loads(out)["tasks"] if task["name"] == "worker-0"]
        seen[name] = (Path(logs) / "stdout").read_text().split()
    assert seen["one"][0].startswith("1.15.")
    assert seen["two"][0].startswith("2.20.")
    assert seen["today"][0] not in (seen["one"][0], seen["two"][0])
    assert [["x", "True"]] * 3 == [words[1:] for words in seen.values()]
