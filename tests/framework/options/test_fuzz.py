"""Random options files: each command shows valid options, or an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from kit.fuzzing import BYTES, as_json, assert_explained, call_main, changed, damaged, fuzz
from options_strategies import documents

#: A document with lists and sections of all kinds.
BASE: dict[str, Any] = {
    "service": {"name": "digits", "command": "python a.py", "strategy": "parameter_server"},
    "worker": {"count": 2, "cpus": 0.5, "environment": [{"name": "A", "value": "1"}], "placement_constraint": "[]"},
    "chief": {"count": 1},
    "secrets": [{"source": "file:team/key", "env": "KEY", "jobs": "worker"}],
    "volumes": [{"host_path": "/mnt/a", "container_path": "a", "mode": "RO"}],
    "plans": {"deploy": "parallel", "phases": [{"plan": "warm", "phase": "one", "job": "worker"}]},
    "restart": {"backoff": 1.0, "max_backoff": 10.0},
    "finish": {"success": "chief"},
    "mesos": {"master": "zk://127.0.0.1:2181/mesos"},
    "scheduler": {"state": "file:///tmp/unused.db"},
}
COMMANDS = [("validate", "FILE"), ("show", "FILE"), ("show", "FILE", "--all"), ("diff", "FILE", "BASE")]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    file = tmp_path / "base.json"
    file.write_bytes(as_json(BASE))
    return file


def test_fuzz_options(base: Path, tmp_path: Path) -> None:
    """No file of options gives a traceback, and each error names what is wrong."""
    assert 0 == call_main("options", "validate", base).code
    file = tmp_path / "options.json"
    changes = changed(BASE) | documents().flatmap(changed)

    def check(drawn: tuple[tuple[str, ...], bytes]) -> None:
        command, content = drawn
        file.write_bytes(content)
        places = {"FILE": file, "BASE": base}
        assert_explained(call_main("options", *(places.get(word, word) for word in command)))

    fuzz(check, st.tuples(st.sampled_from(COMMANDS), changes.map(as_json) | damaged(as_json(BASE)) | BYTES))
