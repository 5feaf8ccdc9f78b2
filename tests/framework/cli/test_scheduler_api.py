"""The API of a real scheduler on a real Mesos: logs from the agent, commands, events that survive, who may do what."""

from __future__ import annotations

import getpass
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from mesos_local.host.process import free_ports
from tf_scheduler.zipapp_builder import build_bundle

PATIENCE = 120
#: Cut in the middle of a character by a reader that counts bytes.
PROGRAM = "mkfifo pipe; ln -s /etc/hostname link; ln -s /etc etc; echo héllo from me; exec sleep 1000"


class Api:
    """One scheduler, and a client of it."""

    def __init__(self, folder, master):
        self.port = free_ports(1)[0]
        document = {
            "service": {"name": "api", "user": getpass.getuser(), "command": PROGRAM, "python": sys.executable},
            "parameter_server": {"count": 0},
            "worker": {"count": 1, "cpus": 0.1, "mem": 64, "disk": 0},
            "executor": {"python": sys.executable},
            "mesos": {"master": master},
            "scheduler": {"state": (folder / "state.db").as_uri()},
            "api": {"read_token": "env:READING", "write_token": "env:WRITING"},
        }
        self.options = folder / "options.json"
        self.options.write_text(json.dumps(document))

    @contextmanager
    def running(self, **variables):
        command = [sys.executable, "-m", "tf_scheduler", "scheduler", "run", "--options", str(self.options)]
        own = {"PORT_API": str(self.port), "EXECUTOR_URI": build_bundle().as_uri(), "HOST": "127.0.0.1"}
        tokens = {"READING": "r", "WRITING": "w"}
        paths = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
        environment = {**paths, **own, **tokens, **variables}
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        log = []
        reader = threading.Thread(target=lambda: log.extend(process.stderr))
        reader.start()
        try:
            yield log
            process.send_signal(signal.SIGTERM)
            assert 0 == process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()
            reader.join()
            process.stderr.close()

    def connect(self, method, path, token, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request(method, path, body, headers={"Authorization": f"Bearer {token}"} if token else {})
        return connection

    def ask(self, path, method="GET", token="r", body=None):
        connection = self.connect(method, path, token, body)
        try:
            answer = connection.getresponse()
            text = answer.read().decode()
            return answer.status, json.loads(text) if answer.headers.get_content_type() == "application/json" else text
        finally:
            connection.close()

    def until(self, path, wanted):
        """The first answer that fulfils it."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                code, body = self.ask(path)
                if wanted(code, body):
                    return body
            except OSError:
                pass  # it starts
            threading.Event().wait(0.05)
        raise AssertionError(f"{path}: {code} {body}")


def events(answer):
    """Server-sent events: kind and data."""
    kind = ""
    for line in answer:
        name, _, text = line.decode().rstrip("\n").partition(": ")
        if name == "event":
            kind = text
        elif name == "data":
            yield kind, json.loads(text)


def refused(answer):
    """Status and message."""
    code, body = answer
    return code, body["error"]["message"]


@pytest.mark.mesos
def test_a_service_is_watched_and_commanded_over_its_api(tmp_path, local_cluster):
    """From its launch over a restart of its task and of its scheduler to its end."""
    api = Api(tmp_path, local_cluster.master.address)
    with api.running() as log:
        api.until("/v1/plans/deploy", lambda code, _: code == 200)
        task = api.ask("/v1/tasks/worker-0")[1]
        assert "RUNNING" == task["status"]
        path = "/v1/tasks/worker-0/logs"
        shown = api.until(path, lambda code, body: code == 200 and "from" in body["data"])
        assert (task["id"], "stdout", shown["size"]) == (shown["id"], "stdout", shown["next"])
        start = shown["data"].encode().index("é".encode())
        assert "é" == api.ask(f"{path}?offset={start}&length=3")[1]["data"][0]
        assert start == api.ask(f"{path}?offset=0&length={start + 1}")[1]["next"]
        assert 404 == api.ask(f"{path}?file=nothing")[0]
        assert 400 == api.ask(f"{path}?file=../../../etc/passwd")[0]
        # An agent that opens a pipe answers nobody any more; and in its refusal of a link is a path of its machine.
        assert (400, "pipe: not a regular file, but a folder, pipe or device") == refused(api.ask(f"{path}?file=pipe"))
        code, why = refused(api.ask(f"{path}?file=link"))
        assert (502, True) == (code, why.endswith("for link"))
        code, why = refused(api.ask(f"{path}?file=etc/passwd"))
        assert (502, True) == (code, why.endswith("for etc/passwd"))
        assert 200 == api.ask(path)[0]

        following = api.connect("GET", f"{path}?follow=true", "r")
        heard = events(following.getresponse())
        assert "log" == next(heard)[0]
        assert [401, 403] == [api.ask("/v1/pod/worker-0/restart", "POST", token)[0] for token in ("", "r")]
        assert (200, {"pod": "worker-0", "tasks": ["worker-0"]}) == api.ask("/v1/pod/worker-0/restart", "POST", "w")
        launch = next(data for kind, data in heard if kind == "launch")
        assert task["id"] != launch["id"]
        assert "from" in next(data["data"] for kind, data in heard if kind == "log" and data["data"])
        following.close()
        assert 200 == api.ask("/v1/health", token="")[0]
        assert 403 == api.ask("/v1/state/files/note", "PUT")[0]
        assert 200 == api.ask("/v1/state/files/note", "PUT", "w", b"kept")[0]
        told = api.ask("/v1/events?task=worker-0")[1]
        assert any("operator wants restart of worker-0" in event["message"] for event in told["events"])
    audited = [line for line in log if "audit: POST /v1/pod/worker-0/restart" in line]
    assert ["401", "403", "200"] == [line.rstrip().rpartition(": ")[2].split()[0] for line in audited]
    assert "Bearer" not in "".join(log)

    with api.running(SDK_UNINSTALL="true"):
        api.until("/v1/plans/deploy", lambda code, _: code == 200)
        kept = api.ask("/v1/events?after=0")[1]["events"]
        assert told["events"][0] in kept
        assert (["note"], "kept") == (api.ask("/v1/state/files")[1], api.ask("/v1/state/files/note")[1])
        assert 2 == sum(event["kind"] == "SchedulerStarted" for event in kept)
