"""Real GPUs, with the isolator gpu/nvidia; skipped on a machine without one.

Control groups of limits may be missing: then their isolators are left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from containers.conftest import PLAIN, QUICK, Containers, bare_python, host_state, job
from kit.shared import port_block
from kit.waiting import wait_until
from mesos_local.agents import AgentSpec, count_gpus
from mesos_local.cluster import LocalCluster
from mesos_local.network import cgroups_root, missing_requirements
from mesos_local.node import assign_gpus, container_flags

GROUPS = Path("/sys/fs/cgroup")
TRAIN = Path(__file__).parents[2] / "examples" / "pytorch_ddp" / "train.py"
#: Prints which GPUs nvidia-smi lists, and the errors of opening all devices.
LOOK = """
import errno, glob, json, os, subprocess, time
listed = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, universal_newlines=True).stdout.splitlines()
errors = {}
for path in sorted(glob.glob("/dev/nvidia[0-9]*")):
    try:
        os.close(os.open(path, os.O_RDWR))
        errors[path] = ""
    except OSError as error:
        errors[path] = errno.errorcode[error.errno]
names = "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"
print(json.dumps({"listed": listed, "errors": errors, **{name: os.environ.get(name) for name in names}}), flush=True)
"""
#: Allocates memory of the GPU with the driver's library.
USE = """
from ctypes import CDLL, byref, c_int, c_size_t, c_void_p
cuda, count, address, context = CDLL("libcuda.so.1"), c_int(), c_void_p(), c_void_p()
codes = [cuda.cuInit(0), cuda.cuDeviceGetCount(byref(count))]
codes += [cuda.cuDevicePrimaryCtxRetain(byref(context), 0), cuda.cuCtxSetCurrent(context)]
codes += [cuda.cuMemAlloc_v2(byref(address), c_size_t(1 << 30))]
print(codes, count.value)
"""
WAIT = "until [ -e gate/end ]; do sleep 0.1; done"


def isolation() -> str:
    """Return the isolators of a cluster with containers that this machine supports."""
    listed = container_flags(Path("any"), "agent-1", Path("any"), "0")["isolation"].split(",")
    groups = {"cgroups/cpu": "cpu", "cgroups/mem": "memory"}
    missing = {name for name, group in groups.items() if not (GROUPS / group / "cgroup.procs").exists()}
    return ",".join(one for one in listed if one not in missing)


@pytest.fixture(scope="module")
def gpus(real_containers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    """A cluster whose only agent has all GPUs; afterwards nothing of it is left."""
    if not assign_gpus([AgentSpec("agent-1", {"gpus": 1})]):
        pytest.skip("needs an NVIDIA GPU with its driver, and cgroups version 1 (devices)")
    if missing := [what for what in missing_requirements() if not what.startswith("cgroups")]:
        pytest.skip(f"containers need {', '.join(missing)}")
    before, folder = host_state(), tmp_path_factory.mktemp("gpus")
    with port_block() as first, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        resources = {"cpus": 4, "mem": 16384, "disk": 10000, "gpus": count_gpus(), "ports": f"[{first}-{first + 99}]"}
        directory = folder / "state" / "dcos-tensorflow" / "local"
        agent, flags = AgentSpec("agent-1", resources), {"isolation": isolation()}
        with LocalCluster([agent], directory, QUICK, flags, containers=True, die_with_parent=True) as cluster:
            containers = Containers(folder, folder / "state", cluster)
            image = tmp_path_factory.mktemp("image")
            containers.build(PLAIN, bare_python(Path(sys.base_prefix, "bin", "python3"), image))
            yield containers
    assert before == host_state(folder)
    assert [] == list(GROUPS.glob(f"*/{cgroups_root(directory)}"))


def allocated(gpus: Containers) -> float:
    """Return the number of GPUs that the master has allocated."""
    (agent,) = gpus.cluster.state().agents
    return float(agent.used.get("gpus", 0))


def looking(name: str, folder: Path, command: str, **worker: Any) -> dict[str, Any]:
    """Return options of a task that looks at the devices, with the folder `gate`."""
    (folder / "look.py").write_text(LOOK)
    options = job(name, f"python3 gate/look.py && {command}", {"max_failures": 0, **worker})
    volumes = [{"host_path": str(folder), "container_path": "gate"}]
    return options | {"volumes": volumes, "placement": {"gpu_scheduling_behavior": "unrestricted"}}


def test_only_tasks_with_gpus_can_open_them(gpus: Containers, tmp_path: Path) -> None:
    """Tasks of one agent; `tasks` and `exec` show the GPU."""
    options = looking("open", tmp_path, WAIT)
    options["gpu_worker"] = {**options["worker"], "gpus": 1, "gpu_check": False}
    with gpus.started(options) as run:
        wait_until(lambda: [task.state for task in gpus.cluster.state().tasks] == 2 * ["TASK_RUNNING"])
        amount = allocated(gpus)
        tasks = gpus.command("tasks", "--json")
        inside = gpus.command("exec", "worker-1", "--", "nvidia-smi", "-L")
        (tmp_path / "end").touch()
        report = json.loads(run.communicate()[0])

    assert "succeeded" == report["state"], report
    without, own = (json.loads(gpus.output(report, name)) for name in ("worker-0", "worker-1"))
    assert ("", "void") == (without["CUDA_VISIBLE_DEVICES"], without["NVIDIA_VISIBLE_DEVICES"])
    assert not any("UUID" in line for line in without["listed"])
    assert {"EPERM"} == set(without["errors"].values())
    assert 1 == len(own["listed"])
    assert own["CUDA_VISIBLE_DEVICES"] in own["listed"][0]
    assert 1 == sum(error != "EPERM" for error in own["errors"].values())
    assert 1 == amount
    assert [0, 1] == [task["resources"]["gpus"] for task in json.loads(tasks.stdout)["tasks"]]
    assert own["listed"] == inside.stdout.splitlines()


def test_pytorch_trains_on_its_gpu(gpus: Containers) -> None:
    """The example reaches its accuracy, after the GPU check."""
    if find_spec("torch") is None:
        pytest.skip("needs PyTorch with CUDA in this Python")
    command = 'python train.py --model-dir "$CHECKPOINT_DIR"'
    worker = {"gpus": 1, "mem": 8192, "cpus": 2, "max_failures": 0}
    report = gpus.run(job("train", command, worker, strategy="pytorch_ddp", job_url=str(TRAIN)))

    assert "succeeded" == report["state"], report
    errors = gpus.output(report, name="stderr")
    assert "training on cuda:0" in errors
    assert "accuracy" in gpus.output(report)
    assert "GPU check skipped" not in errors


def test_gpu_of_a_killed_executor_is_free_again(gpus: Containers, tmp_path: Path) -> None:
    """The first launch kills its executor, the second one gets the GPU."""
    command = f"echo >> gate/started; [ $(wc -l < gate/started) = 2 ] || kill -9 $PPID; {WAIT}"
    with gpus.started(looking("killed", tmp_path, command, gpus=1, gpu_check=False, max_failures=1)) as run:
        wait_until(lambda: "\n\n" == (tmp_path / "started").read_text(), ignore=FileNotFoundError)
        amount = allocated(gpus)
        (tmp_path / "end").touch()
        report = json.loads(run.communicate()[0])

    assert "succeeded" == report["state"], report
    assert 1 == amount
    wait_until(lambda: 0 == allocated(gpus))
    assert 1 == len(json.loads(gpus.output(report))["listed"])


def test_restarted_agent_knows_the_gpus_of_its_tasks(gpus: Containers, tmp_path: Path) -> None:
    """Mesos recovers them from the control groups; the next task gets the free GPU."""
    options = looking("kept", tmp_path, f"touch gate/started; {WAIT}; python3 gate/look.py", gpus=1, gpu_check=False)
    with gpus.started(options) as run:
        wait_until((tmp_path / "started").exists)
        agent = gpus.cluster.agents["agent-1"]
        agent.kill()
        agent.start()
        gpus.cluster.wait_registered()
        amount = allocated(gpus)
        (tmp_path / "end").touch()
        report = json.loads(run.communicate()[0])
    following = gpus.run(looking("following", tmp_path, "true", gpus=1, gpu_check=False))

    assert 1 == amount
    for each in (report, following):
        assert "succeeded" == each["state"], each
        assert [[""]] == [[*json.loads(line)["errors"].values()] for line in gpus.output(each).splitlines()[-1:]]


def test_job_for_more_gpus_is_refused_with_the_reason(gpus: Containers, tmp_path: Path) -> None:
    options = job("many", "true", {"gpus": count_gpus() + 1})
    (tmp_path / "many.json").write_text(json.dumps(options))

    refused = gpus.command("local", "run", tmp_path / "many.json")

    assert 0 != refused.returncode
    assert f"needs gpus {count_gpus() + 1}, has {count_gpus()}" in refused.stderr


def test_image_gets_the_devices_and_the_driver(gpus: Containers, tmp_path: Path) -> None:
    """The agent mounts the driver's programs and libraries, which images do not have."""
    (tmp_path / "use.py").write_text(USE)
    options = looking("image", tmp_path, "python3 gate/use.py", gpus=1, image=PLAIN)

    report = gpus.run(options)

    assert "succeeded" == report["state"], report
    looked, used = gpus.output(report).splitlines()
    own = json.loads(looked)
    assert [own["CUDA_VISIBLE_DEVICES"] in line for line in own["listed"]] == [True], own
    assert "[0, 0, 0, 0, 0] 1" == used
