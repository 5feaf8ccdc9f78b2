"""Metrics (HTTP and StatsD) and the log of a real scheduler on a real Mesos."""

from __future__ import annotations

import json
import socket
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kit.commands import SMALL, SchedulerCommand, request
from kit.waiting import PATIENCE, wait_until
from tf_scheduler.logging_setup import CONTINUATION, KEYS, parse_line

CANARY = "canary-5ecret-value"
TOKEN = "token-of-the-operator"


@contextmanager
def running(folder, master, form, statsd):
    """Run a scheduler; yield its port and the file of its log."""
    service = {
        "name": f"metered-{form}",
        "strategy": "between_graph",
        # Other tests use this cluster, too: Mesos removes the tasks soon after their scheduler.
        "failover_timeout": 1,
        # The program is in the message of its end, which is logged.
        "command": f"echo {CANARY}; exec sleep 1000",
        "log_format": form,
        "log_level": "ALL",
    }
    sections = {
        "worker": {"count": 1, **SMALL, "environment": {"A_TOKEN": CANARY}},
        "api": {"write_token": "env:WRITING"},
        "metrics": {"statsd": f"127.0.0.1:{statsd.getsockname()[1]}"},
    }
    command, log = SchedulerCommand(folder / "options.json", master, service=service, **sections), folder / "log"
    try:
        with log.open("w") as stream:
            process = command.start(stderr=stream, WRITING=TOKEN, STATSD_POLL_INTERVAL_S="1")
        yield command.port, log
        command.end(process)
    finally:
        command.stop()


def ask(port, path, method="GET"):
    return request(port, path, method, TOKEN)


def samples(port):
    """Return (name, labels) -> value."""
    families = text_string_to_metric_families(ask(port, "/v1/metrics/prometheus").text)
    return {(item.name, *item.labels.values()): item.value for family in families for item in family.samples}


@pytest.fixture
def statsd():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(PATIENCE)
        yield server


def test_metrics_and_json_log_of_real_scheduler(local_cluster, tmp_path: Path, statsd) -> None:
    """A worker is launched and restarted; all JSON lines share keys, without secrets."""
    with running(tmp_path, local_cluster.master.address, "json", statsd) as (port, log):
        wait_until(lambda: samples(port).get(("tensorflow_tasks", "TASK_RUNNING")) == 1)
        assert 200 == ask(port, "/v1/pod/worker-0/restart", "POST").status
        assert 404 == ask(port, f"/v1/plans/{CANARY}/restart?phase={TOKEN}", "POST").status
        wait_until(lambda: samples(port).get(("tensorflow_launches_total", "worker")) == 2)
        wait_until(lambda: samples(port).get(("tensorflow_tasks", "TASK_RUNNING")) == 1)

        values = samples(port)
        assert 1 == values["tensorflow_subscribed",] == values["tensorflow_recoveries_total", "ordered"]
        assert values["tensorflow_store_seconds_count",] > 3
        assert values["tensorflow_decision_seconds_count", "OffersReceived"] >= 2
        assert 1 == values["tensorflow_api_requests_total", "404", "POST"]
        assert pytest.approx(0.2) == values["tensorflow_allocated", "worker", "cpus"]
        assert "text/plain; version=0.0.4; charset=utf-8" == ask(port, "/v1/metrics/prometheus").content_type
        sdk = ask(port, "/v1/metrics").json
        assert 2 == sdk["counters"]["operation.launch"]["count"]
        wanted = {b"metered-json.offers.received", b"metered-json.tensorflow_allocated.worker.cpus"}
        while wanted:
            wanted -= {line.partition(b":")[0] for line in statsd.recv(65_536).splitlines()}

    text = log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert all({"time", "level", "logger", "message", *KEYS} <= set(line) for line in lines)
    launches = [line for line in lines if line["offer_id"] and line["task_id"]]
    assert 2 == len(launches) == len({line["task_id"] for line in launches})
    assert all(line["agent_id"] and line["decision"] for line in launches)
    assert CANARY not in text
    assert TOKEN not in text
    assert [line for line in lines if line["message"].startswith("audit: POST /v1/plans/********/restart")]


def test_console_log_of_real_scheduler(local_cluster, tmp_path: Path, statsd) -> None:
    """Each line has a head or continues a line; lines about a task name the task."""
    with running(tmp_path, local_cluster.master.address, "console", statsd) as (port, log):
        wait_until(lambda: samples(port).get(("tensorflow_tasks", "TASK_RUNNING")) == 1)

    text = log.read_text()
    assert all(parse_line(line) or line.startswith(CONTINUATION) for line in text.splitlines())
    (running_line,) = (line for line in text.splitlines() if "worker-0 on " in line and " is running" in line)
    assert " [task=worker-0 task_id=worker-0__" in running_line
    assert CANARY not in text
