"""API of a real scheduler on a real Mesos: agent logs, commands, events, access."""

from __future__ import annotations

import base64
import json
import signal
import threading
from contextlib import contextmanager
from pathlib import Path

from kit.commands import SMALL, SchedulerCommand, send
from kit.waiting import PATIENCE, wait_until

#: A reader that counts bytes cuts this in the middle of a character.
PROGRAM = "mkfifo pipe; ln -s /etc/hostname link; ln -s /etc etc; echo héllo from me; exec sleep 1000"


class Api(SchedulerCommand):
    """One scheduler, and a client with the read token."""

    @contextmanager
    def running(self, **variables):
        """Run the scheduler; yield the lines of its log."""
        process = self.start(READING="r", WRITING="w", **variables)
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

    def ask(self, path, method="GET", token="r", body=None):
        """Return status and JSON or text."""
        answer = self.request(path, method, token, body)
        return answer.status, answer.json if answer.content_type.startswith("application/json") else answer.text

    def until(self, path, condition):
        """Return the first body that fulfils the condition."""
        return wait_until(lambda: condition(*(answer := self.ask(path))) and answer[1:])[0]


def events(answer):
    """Yield kind and data of server-sent events."""
    kind = ""
    for line in answer:
        name, _, text = line.decode().rstrip("\n").partition(": ")
        if name == "event":
            kind = text
        elif name == "data":
            yield kind, json.loads(text)


def refused(answer):
    """Return status and message."""
    code, body = answer
    return code, body["error"]["message"]


def test_api_reads_and_controls_a_service(tmp_path: Path, local_cluster) -> None:
    """Through a restart of its task and of its scheduler to its uninstall."""
    service = {"name": "api", "command": PROGRAM}
    access = {"read_token": "env:READING", "write_token": "env:WRITING"}
    worker = {"count": 1, **SMALL}
    master = local_cluster.master.address
    api = Api(tmp_path / "options.json", master, service=service, worker=worker, api=access)
    with api.running() as log:
        api.until("/v1/plans/deploy", lambda code, _: code == 200)
        task = api.ask("/v1/tasks/worker-0")[1]
        assert "RUNNING" == task["status"]
        path = "/v1/tasks/worker-0/logs"
        log_part = api.until(path, lambda code, body: code == 200 and "from" in body["data"])
        assert (task["id"], log_part["size"]) == (log_part["id"], log_part["next"])
        start = log_part["data"].encode().index("é".encode())
        assert "é" == api.ask(f"{path}?offset={start}&length=3")[1]["data"][0]
        assert start == api.ask(f"{path}?offset=0&length={start + 1}")[1]["next"]
        assert "0" == api.ask(f"{path}?file=stdout.times")[1]["data"].split()[0]
        assert 404 == api.ask(f"{path}?file=nothing")[0]
        part = api.ask(f"{path}?offset={start}&length=1&binary=true")[1]
        assert ("é".encode()[:1], start + 1) == (base64.b64decode(part["data"]), part["next"])
        files = api.ask("/v1/tasks/worker-0/files")[1]
        modes = {entry["name"]: entry["mode"][0] for entry in files["files"]}
        assert (task["id"], "-", "p") == (files["id"], modes["stdout"], modes["pipe"])
        assert 404 == api.ask("/v1/tasks/worker-0/files?folder=nothing")[0]
        assert 400 == api.ask("/v1/tasks/worker-0/files?folder=..")[0]
        assert 400 == api.ask("/v1/tasks/worker-0/files?folder=etc")[0]  # a link out of the working directory
        assert 400 == api.ask(f"{path}?file=../../../etc/passwd")[0]
        # Opening a pipe would block the agent; its error message for a link contains a path of its machine.
        assert (400, "pipe: not a regular file, but a folder, pipe or device") == refused(api.ask(f"{path}?file=pipe"))
        for name in ("link", "etc/passwd"):
            assert 400 == api.ask(f"{path}?file={name}")[0]
        assert 200 == api.ask(path)[0]

        following = send(api.port, f"{path}?follow=true", "GET", "r")
        stream = events(following.getresponse())
        assert "log" == next(stream)[0]
        assert [401, 403] == [api.ask("/v1/pod/worker-0/restart", "POST", token)[0] for token in ("", "r")]
        assert (200, {"pod": "worker-0", "tasks": ["worker-0"]}) == api.ask("/v1/pod/worker-0/restart", "POST", "w")
        launch = next(data for kind, data in stream if kind == "launch")
        assert task["id"] != launch["id"]
        assert "from" in next(data["data"] for kind, data in stream if kind == "log" and data["data"])
        following.close()
        assert 200 == api.ask("/v1/health", token="")[0]
        assert 403 == api.ask("/v1/state/files/note", "PUT")[0]
        assert 200 == api.ask("/v1/state/files/note", "PUT", "w", b"kept")[0]
        journal = api.ask("/v1/events?task=worker-0")[1]["events"]
        assert any("restart worker-0" in event["message"] for event in journal)
    audited = [line for line in log if "audit: POST /v1/pod/worker-0/restart" in line]
    assert ["401", "403", "200"] == [line.rstrip().rpartition(": ")[2].split()[0] for line in audited]
    assert "Bearer" not in "".join(log)

    with api.running(SDK_UNINSTALL="true"):
        api.until("/v1/plans/deploy", lambda code, _: code == 200)
        kept = api.ask("/v1/events?after=0")[1]["events"]
        assert journal[0] in kept
        assert (["note"], "kept") == (api.ask("/v1/state/files")[1], api.ask("/v1/state/files/note")[1])
        assert 2 == sum(event["kind"] == "SchedulerStarted" for event in kept)
