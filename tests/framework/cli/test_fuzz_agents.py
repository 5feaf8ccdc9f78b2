"""Random agents files: `local up` and `local run` explain what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from kit.fuzzing import BYTES, as_json, assert_explained, call_main, changed, damaged, fuzz
from mesos_local.cluster import LocalCluster
from mesos_local.host import MesosLocalError

AGENTS: list[dict[str, Any]] = [
    {"hostname": "a", "resources": {"cpus": 2, "mem": 4096, "ports": "[31000-31099]"}, "attributes": {"rack": "a"}},
    {"hostname": "b", "resources": "cpus:2;mem:4096;gpus:1;labels:{a,b}", "attributes": "rack:b;zone:c"},
]
STOPPED = "the test starts no cluster"


def refuse_start(_cluster: LocalCluster) -> None:
    raise MesosLocalError(STOPPED)


def test_fuzz_agents_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster starts only for a valid file; else the command names the problem."""
    # Port blocks that the command reserves belong to this test.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(LocalCluster, "start", refuse_start)
    file, options = tmp_path / "agents.json", tmp_path / "options.json"
    service = {"name": "digits", "command": "true"}
    options.write_text(json.dumps({"service": service, "worker": {"count": 1}, "parameter_server": {"count": 0}}))
    commands = [("local", "up", "--agents", file), ("local", "run", options, "--agents", file)]

    def check(drawn: tuple[int, bytes]) -> None:
        number, content = drawn
        file.write_bytes(content)
        outcome = call_main(*commands[number], "--dir", tmp_path / "cluster")
        assert_explained(outcome)
        assert STOPPED in outcome.err or str(file) in outcome.err or "agent" in outcome.err, outcome

    contents = changed(AGENTS).map(as_json) | damaged(as_json(AGENTS)) | BYTES
    fuzz(check, st.tuples(st.sampled_from([0, 1]), contents | st.just(as_json(AGENTS))))
