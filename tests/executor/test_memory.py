from __future__ import annotations

import base64
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.waiting import wait_until
from tf_executor.contract.reports import TaskEnd
from tf_executor.process.freezing import ProcessSample
from tf_executor.process.memory import OomKills, UsageMeter, read_oom_kills

CGROUPS = Path("/sys/fs/cgroup")


def files(root: Path, **contents: str) -> Path:
    """Write files of a simulated /proc and /sys; `__` in a name stands for `/`."""
    for name, text in contents.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


VMSTAT = "nr_free_pages 1\noom_kill 7\n"


def test_cgroup_v2_counters(tmp_path: Path) -> None:
    root = files(
        tmp_path,
        proc__self__cgroup="0::/mesos/abc\n",
        proc__vmstat=VMSTAT,
        sys__fs__cgroup__mesos__abc__memory_dot_events="low 0\noom 3\noom_kill 2\noom_group_kill 0\n",
        sys__fs__cgroup__mesos__abc__memory_dot_max="1073741824\n",
    )
    assert OomKills(2, 7, 1 << 30) == read_oom_kills(root)


def test_cgroup_v2_with_private_namespace(tmp_path: Path) -> None:
    root = files(
        tmp_path,
        proc__self__cgroup="0::/\n",
        sys__fs__cgroup__memory_dot_events="oom_kill 1\n",
        sys__fs__cgroup__memory_dot_max="1048576\n",
    )
    assert OomKills(1, None, 1 << 20) == read_oom_kills(root)


def test_cgroup_v1_counters(tmp_path: Path) -> None:
    root = files(
        tmp_path,
        proc__self__cgroup="5:cpu,cpuacct:/a\n4:memory:/mesos/abc\n0::/\n",
        sys__fs__cgroup__memory__mesos__abc__memory_dot_oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
        sys__fs__cgroup__memory__mesos__abc__memory_dot_limit_in_bytes="9223372036854771712\n",
    )
    assert OomKills(4, None, None) == read_oom_kills(root)


def test_root_group_is_not_a_container(tmp_path: Path) -> None:
    """The path `/` is also used for the host."""
    root = files(
        tmp_path,
        proc__self__cgroup="4:memory:/\n",
        proc__vmstat=VMSTAT,
        sys__fs__cgroup__memory__memory_dot_oom_control="oom_kill 4\n",
    )
    assert OomKills(None, 7, None) == read_oom_kills(root)


def test_system_without_counters_returns_none(tmp_path: Path) -> None:
    """Old kernels and other mounts."""
    assert OomKills() == read_oom_kills(tmp_path)
    assert (False, "") == OomKills().since(OomKills(), killed=True)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (OomKills(1, 1), OomKills(1, 1), (False, "")),
        (
            OomKills(1, 1),
            OomKills(2, 2, 1 << 30),
            (
                True,
                "out of memory: the kernel killed 1 process of the task's container, whose limit is 1024 MB",
            ),
        ),
        (
            OomKills(1, 1),
            OomKills(3, 3),
            (True, "out of memory: the kernel killed 2 processes of the task's container"),
        ),
        (
            OomKills(1, 1),
            OomKills(1, 2),
            (False, "the kernel killed 1 process on this host: it or another container was out of memory"),
        ),
    ],
)
def test_oom_kills_since_launch_are_described(before: OomKills, after: OomKills, expected: tuple[bool, str]) -> None:
    """The counters never decrease."""
    assert expected == after.since(before, killed=True)


def test_kill_on_the_host_explains_no_other_end() -> None:
    """A program may fail while another container is out of memory."""
    assert (False, "") == OomKills(1, 2).since(OomKills(1, 1), killed=False)
    assert OomKills(2, 2).since(OomKills(1, 1), killed=False)[0]


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group with a limit of 64 MB, if this system permits it."""
    parent = CGROUPS / "memory" if (CGROUPS / "memory").is_dir() else CGROUPS
    group = parent / f"test-{uuid.uuid4().hex}"
    limit = "memory.limit_in_bytes" if parent != CGROUPS else "memory.max"
    try:
        group.mkdir()
        (group / limit).write_text(str(64 << 20))
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"no control group can be made here: {error}")
    try:
        yield group
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            (parent / "cgroup.procs").write_text(pid)
        wait_until(lambda: group.rmdir() is None, ignore=OSError)  # busy while a process exits


HUNGRY = "held = bytearray(500 << 20)\nprint(len(held))\n"


@pytest.mark.parametrize(
    ("command", "how"),
    [
        ("exec python hungry.py", "killed by signal 9 (SIGKILL)"),
        ("python hungry.py; exit $?", "exit code 137 (killed by signal 9 (SIGKILL))"),
        ("python hungry.py || exit 1", "exit code 1"),
    ],
)
def test_real_oom_kill_is_reported(executor: Any, small_group: Path, command: str, how: str) -> None:
    (small_group / "cgroup.procs").write_text(str(executor.process.pid))
    (executor.sandbox / "hungry.py").write_text(HUNGRY)
    executor.launch(command)
    message = executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FAILED")["message"]
    said = "out of memory: the kernel killed 1 process of the task's container, whose limit is 64 MB"
    assert message.startswith(f"{how}; {said}"), message
    executor.acknowledge("TASK_FAILED")
    assert 0 == executor.process.wait()
    assert os.path.isdir(small_group)  # noqa: PTH112


# What a task uses.


def test_shared_memory_counts_once(tmp_path: Path) -> None:
    """Workers of a data loader share a segment with the program, and libraries."""
    text = "Name:\tpython\nVmHWM:\t  {} kB\nVmRSS:\t  9 kB\nRssAnon:\t {} kB\nRssFile:\t {} kB\nRssShmem:\t {} kB\n"
    files(tmp_path, **{"1__status": text.format(307_200, 102_400, 20_480, 51_200)})
    files(tmp_path, **{"2__status": text.format(1, 10_240, 10_240, 51_200)})
    meter = UsageMeter(tmp_path)
    first = meter.measure([ProcessSample(1, 7, "R", 100), ProcessSample(2, 8, "R", 0)], 10.0)
    # Process 2 has exited, and its id belongs to another one; a third one has exited meanwhile.
    again = meter.measure(
        [ProcessSample(1, 7, "R", 400), ProcessSample(2, 9, "R", 100), ProcessSample(3, 9, "R", 0)], 12.0
    )

    assert (300.0, 180.0) == (first.memory_peak_mb, first.memory_used_mb)
    assert (2.0, 300.0) == (again.cpus_used, again.memory_peak_mb)
    assert (400.0, None) == (meter.end(409_600).memory_peak_mb, meter.end(409_600).memory_used_mb)


def test_old_kernel_has_only_the_sum(tmp_path: Path) -> None:
    files(tmp_path, **{"1__status": "VmHWM:\t4096 kB\nVmRSS:\t2048 kB\n"})
    usage = UsageMeter(tmp_path).measure([ProcessSample(1, 7, "R", 0)], 1.0)
    assert (4.0, 2.0) == (usage.memory_peak_mb, usage.memory_used_mb)
    assert 0.0 == UsageMeter(tmp_path).measure([], 1.0).memory_used_mb


def test_usage_of_children_is_sent(executor: Any) -> None:
    """The program's memory is in a child of its shell, and the peak in another one."""
    os.mkfifo(executor.sandbox / "go")
    held = "held = bytearray(100 * 2**20); open('go').read()"
    executor.launch(f'python -c "{held}"; python -c "bytearray(300 * 2**20)"')
    executor.states("TASK_STARTING", "TASK_RUNNING")
    usage = executor.await_usage()
    (executor.sandbox / "go").open("w").close()
    executor.states("TASK_FINISHED")
    last = executor.usages[-1]

    assert ("usage", "t1") == (usage["kind"], usage["task_id"])
    assert 100 <= usage["memory_used_mb"] <= usage["memory_peak_mb"] < 200
    assert 0 <= usage["cpus_used"] < 3
    assert 300 <= last["memory_peak_mb"] < 400
    assert "memory_used_mb" not in last


#: Four processes with the same 80 MB, until the pipe `go` is written.
SHARED = "import os; held = bytearray(80 << 20); os.fork(); os.fork(); open('go').read()"


def test_task_that_exceeds_its_limit_is_killed(executor: Any) -> None:
    """With all of its processes, at once, whatever its shell makes of it."""
    hungry = "import time; held = bytearray(500 << 20); time.sleep(99)"
    executor.launch(f"trap '' TERM; python -c '{hungry}' || exit 3", memory_limit=300)
    status = executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FAILED")

    match = re.match(r"out of memory: the task used (\d+) MB, but mem is 300 MB; killed by signal 9", status["message"])
    assert match is not None, status["message"]
    assert 300 < int(match[1]) < 600
    assert TaskEnd(signal=9, out_of_memory=True) == TaskEnd.decode(base64.b64decode(status["data"]))
    assert [] == executor.processes()


def test_forked_processes_share_their_memory(executor: Any) -> None:
    """Workers of a data loader fit into 200 MB with their 4 x 80 MB."""
    os.mkfifo(executor.sandbox / "go")
    executor.launch(f'exec python -c "{SHARED}"', memory_limit=200)
    executor.states("TASK_STARTING", "TASK_RUNNING")
    usage = executor.await_usage()
    (executor.sandbox / "go").open("w").close()
    executor.states("TASK_FINISHED")

    assert usage["memory_used_mb"] > 300
