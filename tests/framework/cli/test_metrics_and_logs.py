"""A real scheduler on a real Mesos: its metrics over HTTP and StatsD, and its log, line by line."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kit.waiting import wait_until
from mesos_local.host.process import free_ports
from tf_scheduler.logging_setup import CONTINUATION, KEYS, parse_line
from tf_scheduler.zipapp_builder import build_bundle

PATIENCE = 120
CANARY = "canary-5ecret-value"
TOKEN = "token-of-the-operator"

pytestmark = [pytest.mark.mesos]


@contextmanager
def running(folder, master, form, statsd):
    """Port of its API, and the file that its log goes to; asked to leave at the end."""
    port, options, log = free_ports(1)[0], folder / "options.json", folder / "log"
    document = {
        "service": {
            "name": f"metered-{form}",
            "user": "root",
            # Other tests use this cluster, too: Mesos removes the tasks soon after their scheduler.
            "failover_timeout": 1,
            # The name of the program is in the message of its end, which is logged.
            "command": f"echo {CANARY}; exec sleep 1000",
            "python": sys.executable,
            "log_format": form,
            "log_level": "ALL",
        },
        "parameter_server": {"count": 0},
        "worker": {"count": 1, "cpus": 0.1, "mem": 64, "disk": 0, "environment": {"A_TOKEN": CANARY}},
        "executor": {"python": sys.executable},
        "mesos": {"master": master},
        "scheduler": {"state": (folder / "state.db").as_uri()},
        "api": {"write_token": "env:WRITING"},
        "metrics": {"statsd": f"127.0.0.1:{statsd.getsockname()[1]}"},
    }
    options.write_text(json.dumps(document))
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PORT_API": str(port),
        "EXECUTOR_URI": build_bundle().as_uri(),
        "HOST": "127.0.0.1",
        "WRITING": TOKEN,
        "STATSD_POLL_INTERVAL_S": "1",
    }
    command = [sys.executable, "-m", "tf_scheduler", "scheduler", "run", "--options", str(options)]
    with log.open("w") as stream:
        process = subprocess.Popen(command, env=environment, stderr=stream)
    try:
        yield port, log
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(PATIENCE), log.read_text()
    finally:
        process.kill()
        process.wait()


def ask(port, path, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request(method, path, headers={"Authorization": f"Bearer {TOKEN}"})
        answer = connection.getresponse()
        return answer.status, answer.headers["content-type"], answer.read().decode()
    finally:
        connection.close()


def samples(port):
    """(name, labels) -> value."""
    _, _, text = ask(port, "/v1/metrics/prometheus")
    families = text_string_to_metric_families(text)
    return {(item.name, *item.labels.values()): item.value for family in families for item in family.samples}


@pytest.fixture
def statsd():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(PATIENCE)
        yield server


def test_metrics_and_json_log_of_a_real_run(local_cluster, tmp_path, statsd):
    """One worker is launched and restarted; every line is JSON with the same keys, and no secret is in it."""
    with running(tmp_path, local_cluster.master.address, "json", statsd) as (port, log):
        wait_until(lambda: samples(port).get(("tensorflow_tasks", "TASK_RUNNING")) == 1, ignore=OSError)
        assert 200 == ask(port, "/v1/pod/worker-0/restart", "POST")[0]
        assert 404 == ask(port, f"/v1/plans/{CANARY}/restart?phase={TOKEN}", "POST")[0]
        wait_until(lambda: samples(port).get(("tensorflow_launches_total", "worker")) == 2, ignore=OSError)
        wait_until(lambda: samples(port)["tensorflow_tasks", "TASK_RUNNING"] == 1, ignore=OSError)

        found = samples(port)
        assert 1 == found["tensorflow_subscribed",] == found["tensorflow_recoveries_total", "ordered"]
        assert found["tensorflow_store_seconds_count",] > 3
        assert found["tensorflow_decision_seconds_count", "OffersReceived"] >= 2
        assert 1 == found["tensorflow_api_requests_total", "404", "POST"]
        assert pytest.approx(0.2) == found["tensorflow_allocated", "worker", "cpus"]
        assert "text/plain; version=0.0.4; charset=utf-8" == ask(port, "/v1/metrics/prometheus")[1]
        sdk = json.loads(ask(port, "/v1/metrics")[2])
        assert 2 == sdk["counters"]["operation.launch"]["count"]
        wanted = {b"metered-json.offers.received", b"metered-json.tensorflow_allocated.worker.cpus"}
        while wanted:
            wanted -= {line.partition(b":")[0] for line in statsd.recv(65_536).splitlines()}

    text = log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert all({"time", "level", "logger", "message", *KEYS} <= set(line) for line in lines)
    launches = [line for line in lines if " goes to " in line["message"]]
    assert 2 == len(launches) == len({line["task_id"] for line in launches})
    assert all(line["offer_id"] and line["agent_id"] and line["decision"] for line in launches)
    assert CANARY not in text
    assert TOKEN not in text
    assert [line for line in lines if line["message"].startswith("audit: POST /v1/plans/********/restart")]


def test_console_log_of_a_real_run(local_cluster, tmp_path, statsd):
    """Each line has a head, or goes on with the one before; those about a task say which."""
    with running(tmp_path, local_cluster.master.address, "console", statsd) as (port, log):
        wait_until(lambda: samples(port).get(("tensorflow_tasks", "TASK_RUNNING")) == 1, ignore=OSError)

    text = log.read_text()
    assert all(parse_line(line) or line.startswith(CONTINUATION) for line in text.splitlines())
    (running_line,) = (line for line in text.splitlines() if "worker-0 on " in line and " is running" in line)
    assert " [task=worker-0 task_id=worker-0__" in running_line
    assert CANARY not in text
