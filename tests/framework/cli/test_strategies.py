"""Strategies and jobs on a real Mesos, with short programs that find each other."""

import json
import re
import signal
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from jobs import PATIENCE, options
from kit.waiting import wait_until

pytestmark = pytest.mark.usefixtures("real_mesos")

NO_PS = {"parameter_server": {"count": 0}}
#: Rendezvous of Horovod's processes: publish the own name, wait for all names.
MEET = """
import contextlib, os, pathlib, time, urllib.error, urllib.request
base = "http://{HOROVOD_GLOO_RENDEZVOUS_ADDR}:{HOROVOD_GLOO_RENDEZVOUS_PORT}/global/".format(**os.environ)
def call(method, name, data=None):
    return urllib.request.urlopen(urllib.request.Request(base + name, data=data, method=method), timeout=60).read()
own = os.environ["HOROVOD_RANK"]
def await_all(key):
    for rank in range(int(os.environ["HOROVOD_SIZE"])):
        while True:
            try:
                assert call("GET", f"{key}{rank}") == f"worker-{rank}".encode()
                break
            except urllib.error.HTTPError:
                time.sleep(0.05)
call("PUT", own, os.environ["TASK_NAME"].encode())
await_all("")
assert pathlib.Path("numbers.txt").read_text() == "1 2 3"
print("all are there")
with contextlib.suppress(OSError):  # the server ends with rank 0
    call("PUT", f"done{own}", os.environ["TASK_NAME"].encode())
if own == "0":
    await_all("done")
"""


def test_horovod_processes_meet_at_rank_0(start_process, tmp_path: Path) -> None:
    """A stand-in for Horovod (real: tests/examples). Each task finds the fetched file."""
    (tmp_path / "meet.py").write_text(MEET)
    (tmp_path / "numbers.txt").write_text("1 2 3")
    service = {"strategy": "horovod", "job_url": "meet.py", "data": (tmp_path / "numbers.txt").as_uri()}

    process = start_process(
        "local", "run", "-v", "--json", options(tmp_path, f"{sys.executable} meet.py", service, **NO_PS)
    )
    out, err = process.communicate(timeout=PATIENCE)

    assert 0 == process.returncode, out + err
    assert {"finished"} == {task["state"] for task in json.loads(out)["tasks"]}
    logs = list((tmp_path / "state").glob("dcos-tensorflow/runs/*/logs/worker-*/stdout"))
    assert ["all are there\n"] * 2 == [path.read_text() for path in logs]


@pytest.mark.usefixtures("real_tensorflow")
def test_tensorboard_stays_after_the_job(start_process, tmp_path: Path) -> None:
    """Until the operator stops it. It is also available through the scheduler."""
    small = {"cpus": 0.1, "mem": 512, "port": 6006}
    service = {"strategy": "independent", "use_tensorboard": True, "command": "true"}
    finish = {"then": "keep_tensorboard", "keep_seconds": 0}
    sections = {**NO_PS, "tensorboard": small, "finish": finish}

    process = start_process("local", "run", "-v", options(tmp_path, "true", service, **sections))
    log = []
    address = kept = api = token = None
    for line in iter(process.stderr.readline, ""):
        log.append(line)
        api = api or re.search(r"the API of small is at (http://\S+)/v1", line)
        token = token or re.search(r"page: \S+#token=(\S+)", line)
        address = address or re.search(r"tensorboard-0 on \S+ is running: (http://\S+/)", line)
        kept = kept or ("tensorboard-0" in line and "keeps running until the service is stopped" in line)
        if address and kept:
            break
    assert address, "".join(log)
    assert api, "".join(log)
    assert token, "".join(log)
    answer = wait_for_answer(address[1] + "data/environment")
    through = f"{api[1]}/tensorboard/"
    asked = urllib.request.Request(through, headers={"X-TensorFlow-Token": token[1]})
    with urllib.request.urlopen(asked, timeout=PATIENCE) as page:
        assert b"<title>TensorBoard of small</title>" in page.read()
        # The key in the path replaces the token.
        frame = page.url
    assert frame.startswith(through)
    assert frame.endswith("/framed")
    assert answer == wait_for_answer(frame.removesuffix("framed") + "data/environment")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)

    assert "data_location" in answer
    assert 0 == process.returncode, "".join(log) + out + err
    assert "small succeeded" in out


def wait_for_answer(url):
    """Return the JSON of a TensorBoard, as soon as it answers."""

    def ask():
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return json.load(answer)

    return wait_until(ask, f"{url} does not answer", OSError)
