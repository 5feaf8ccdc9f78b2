"""Attacks on secrets and on the executor, from and in containers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from containers.conftest import PLAIN, Containers, job, start_agents
from kit.theft import SUBSCRIBE_AS_EXECUTOR
from kit.waiting import wait_until
from mesos_local.network import agent_address

pytestmark = pytest.mark.usefixtures("real_containers")
SECRET, OWN = "canary-51c07a22", "canary-own"
#: Prints the canaries that it finds in memory, files of memory, environments, and other sandboxes of the agent.
SEARCH = r"""
import os, pathlib, re
work = pathlib.Path(os.environ["MESOS_DIRECTORY"]).parents[6]
memory = "/dev/shm"
places = [(memory, "**/*"), ("/proc", "[0-9]*/environ"), ("/proc", f"[0-9]*/root{memory}/**/*"), (work, "**/*")]
found = set()
for folder, pattern in places:
    for path in pathlib.Path(folder).glob(pattern):
        try:
            if path.is_file() and path.stat().st_size < 10**5:
                found.update(re.findall(b"canary-[a-z0-9]+", path.read_bytes()))
        except OSError:
            pass
print(*sorted(name.decode() for name in found))
"""
MASKED = "cat /proc/kcore /proc/timer_list 2>/dev/null | head -c 100 | wc -c; ls /sys/firmware | wc -l"


def with_secrets(options: dict[str, Any]) -> dict[str, Any]:
    """Add a secret, from the variable SOURCE, as variable and as file."""
    source = {"source": "env:SOURCE"}
    return options | {"secrets": [{**source, "env": "KEY"}, {**source, "env": "KEY_FILE", "file": "key"}]}


ON_AGENT_1 = {"placement_constraint": "hostname:IS:agent-1"}


@pytest.mark.parametrize("image", [PLAIN, ""])
def test_container_of_the_same_user_finds_no_secrets(containers: Containers, tmp_path: Path, image: str) -> None:
    """The thief finds its own; images also mask paths of the kernel."""
    (tmp_path / "search.py").write_text(SEARCH)
    expected = SECRET.replace("-", "-''")  # agents store commands
    use = f'test "$KEY" = {expected} && test "$(cat "$KEY_FILE")" = {expected} && touch gate/ready'
    victim = job("victim", f"{use}; until [ -e gate/end ]; do sleep 0.1; done", {"image": image, **ON_AGENT_1})
    victim["volumes"] = [{"host_path": str(tmp_path), "container_path": "gate"}]
    thief = job("thief", f"python search.py; {MASKED}", {"image": image, **ON_AGENT_1})
    thief["service"]["job_url"] = str(tmp_path / "search.py")
    with containers.started(with_secrets(victim), SOURCE=SECRET) as run:
        wait_until((tmp_path / "ready").exists)
        search = containers.run(with_secrets(thief), SOURCE=OWN)
        (tmp_path / "end").touch()
        report = json.loads(run.communicate()[0])

    assert ("succeeded", "succeeded") == (report["state"], search["state"]), (report, search)
    canaries, *masked = containers.output(search).splitlines()
    assert OWN == canaries
    assert not image or ["0", "0"] == masked


@pytest.fixture(scope="module")
def weak(containers: Containers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    """Agents that authenticate no executors and run them as root."""
    state = tmp_path_factory.mktemp("weak")
    flags = {"authenticate_http_executors": False, "switch_user": False}
    with start_agents(containers.folder / "data", state, {}, **flags) as cluster:
        yield replace(containers, state=state, cluster=cluster)


# Without ids, PYTEST_CURRENT_TEST has the secret, and the agents that start for this test pass it to containers.
@pytest.mark.parametrize(("agents", "result"), [("containers", "HTTP 401"), ("weak", SECRET)], ids=["login", "weak"])
def test_container_cannot_take_the_place_of_an_executor(
    request: pytest.FixtureRequest, tmp_path: Path, agents: str, result: str
) -> None:
    """The control, on agents without authentication, gets the secret."""
    containers: Containers = request.getfixturevalue(agents)
    (tmp_path / "steal.py").write_text(SUBSCRIBE_AS_EXECUTOR)
    port = containers.cluster.agents["agent-1"].address.rpartition(":")[2]
    steal = f"python steal.py {agent_address(1)}:{port} >gate/output 2>&1; true"
    thief = job("steals", steal, {"image": PLAIN, **ON_AGENT_1}, job_url=str(tmp_path / "steal.py"))
    thief["volumes"] = [{"host_path": str(tmp_path), "container_path": "gate"}]
    options = job("owner", f'test "$KEY" = {SECRET}', {"image": PLAIN, **ON_AGENT_1})
    options |= {"secrets": [{"source": "env:SOURCE", "env": "KEY"}]}
    options |= {"secret_delivery": {"executor_authentication": "optional"}}
    # The executor of the owner starts after the attack.
    (tmp_path / "python").write_text(
        '#!/bin/sh\nuntil grep -q -e canary -e HTTP gate/output; do sleep 0.1; done\nexec python3 "$@"\n'
    )
    (tmp_path / "python").chmod(0o755)
    options |= {"executor": {"python": "gate/python"}, "volumes": thief["volumes"]}
    output = tmp_path / "output"
    with containers.started(thief) as run:
        wait_until(lambda: output.exists() and "ready\n" == output.read_text())
        report = containers.run(options, SOURCE=SECRET)
        run.communicate()

    assert "succeeded" == report["state"], report
    assert ["ready", result] == output.read_text().splitlines()


def test_root_executor_follows_no_link_in_its_container(weak: Containers, tmp_path: Path) -> None:
    """Output is rotated in a folder that belongs to the task's user."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    (private / "secret").write_text("only root may read this\n")
    (private / "secret").chmod(0o600)
    flood = "yes '* * * * * root evil' | head -c 200000"
    attacks = (
        "grep ^Uid: /proc/$PPID/status > executor",
        f"rm stderr; ln -s /private/secret stderr; {flood} >&2",
        f"ln -s /private/secret stdout.1; {flood}",
        f"ln -sf /private/new stdout.1; {flood}; {flood}",
        f"rm stdout; {flood}; echo end; cat executor; id -un",
    )
    options = job("rotates", "; ".join(attacks), {"image": PLAIN}, user="nobody")
    options["executor"] = {"output_bytes": 1 << 16, "output_backups": 1}
    options["volumes"] = [{"host_path": str(private), "container_path": "/private"}]

    report = weak.run(options)

    assert "succeeded" == report["state"], report
    assert weak.output(report).endswith("end\nUid:\t0\t0\t0\t0\nnobody\n")
    logs = Path(report["run"], "logs", "worker-0")
    assert {"stderr.1", "stdout.1"} <= {path.name for path in logs.iterdir()}
    assert not any("only root" in path.read_text() for path in logs.glob("std*"))
    assert [private / "secret"] == list(private.iterdir())
    assert "only root may read this\n" == (private / "secret").read_text()
