"""Random answers of a master to the commands of the local cluster."""

from __future__ import annotations

from typing import Any

import pytest

from kit.fuzzing import fuzz
from kit.strange_mesos import Reply, StrangeMesos, answers, good
from mesos_local import master_api
from mesos_local.master_api import MasterUnavailableError, read_status
from tf_executor.contract.http import HttpClient

SCALAR = {"name": "cpus", "type": "SCALAR", "scalar": {"value": 2.0}}
PORTS = {"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": 1, "end": 2}]}}
AGENT: dict[str, Any] = {
    "agent_info": {"id": {"value": "a"}, "hostname": "agent-1", "attributes": [{**SCALAR, "name": "rack"}]},
    "pid": "slave(1)@127.0.0.1:5051",
    "active": True,
    "total_resources": [SCALAR, PORTS, {"name": "labels", "type": "SET", "set": {"item": ["a"]}}],
}
TASK = {
    "task_id": {"value": "t"},
    "agent_id": {"value": "a"},
    "framework_id": {"value": "f"},
    "name": "t",
    "state": "X",
}
FRAMEWORK = {"framework_info": {"id": {"value": "f"}, "name": "f", "failover_timeout": 1.0}, "connected": True}
STATE = {
    "type": "GET_STATE",
    "get_state": {
        "get_agents": {"agents": [AGENT]},
        "get_tasks": {"tasks": [TASK], "unreachable_tasks": [TASK]},
        "get_frameworks": {"frameworks": [FRAMEWORK]},
    },
}


@pytest.mark.parametrize("answer", [[], {}, {"get_state": {}}, {"get_state": {"get_agents": {"agents": [{}]}}}])
def test_invalid_state_is_an_error(answer: object) -> None:
    """The message names the master and the call."""
    with StrangeMesos() as mesos:
        mesos.strange = {"GET_STATE": good(answer)}
        with pytest.raises(MasterUnavailableError, match=f"{mesos.address} returned an invalid answer to GET_STATE"):
            read_status(mesos.address)


def test_fuzz_state_of_master(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only error is MasterUnavailableError, in limited time and memory."""
    monkeypatch.setattr(master_api, "_CLIENT", HttpClient(0.6, 0.3, max_bytes=1 << 20))
    with StrangeMesos() as mesos:

        def check(reply: Reply) -> None:
            mesos.strange = {"GET_STATE": reply}
            problem = mesos.address
            try:
                read_status(mesos.address)
            except MasterUnavailableError as error:
                problem = str(error)
            assert mesos.address in problem
            assert len(problem) < 2000

        fuzz(check, answers(STATE))
