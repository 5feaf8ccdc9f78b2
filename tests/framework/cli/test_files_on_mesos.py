"""Files, volumes and ports in whole runs on a real Mesos."""

import hashlib
import json
import os
import urllib.request
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from jobs import options
from kit.http_server import HttpServer
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster
from tf_scheduler.zipapp_builder import build_bundle

pytestmark = pytest.mark.usefixtures("real_mesos")

AGENT = AgentSpec("agent-1", "cpus:4;mem:2048;disk:1000;ports:[12200-12299]")
ALONE = {"worker": {"count": 1}, "parameter_server": {"count": 0}}
OTHER = "0" * 64


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory):
    with LocalCluster([AGENT], tmp_path_factory.mktemp("cluster") / "kept", die_with_parent=True) as cluster:
        yield cluster


@pytest.fixture
def web(tmp_path: Path):
    """The address of a web server for a job, its archive and the executor's bundle."""
    with zipfile.ZipFile(tmp_path / "job.zip", "w") as archive:
        archive.writestr("train.py", "print('trained')")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with HttpServer(handler) as server:
        yield server.url


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def executors(cluster):
    """Return the executors of all frameworks, as the master and the agent tell them."""
    agent = cluster.agents["agent-1"].address
    with urllib.request.urlopen(f"http://{agent}/state", timeout=60) as answer:
        state = json.load(answer)
    frameworks = state["frameworks"] + state["completed_frameworks"]
    return [each for framework in frameworks for each in framework["executors"] + framework["completed_executors"]]


@pytest.fixture
def run_files(run_process, tmp_path: Path, cluster):
    """Run a job; return exit code, output, and the executors that it launched."""

    def run_files(service, executor=None, worker=None):
        before = {each["id"] for each in executors(cluster)}
        sections = {**ALONE, "executor": executor or {}}
        sections["worker"] = {**ALONE["worker"], **(worker or {})}
        path = options(tmp_path, "python train.py", **sections)
        document = json.loads(path.read_text())
        path.write_text(json.dumps({**document, "service": {**document["service"], **service}}))
        code, out, err = run_process("local", "run", path, "--dir", cluster.directory)
        return code, out + err, [each for each in executors(cluster) if each["id"] not in before]

    return run_files


def test_job_and_data_with_digests_run(run_files, tmp_path: Path, web, cluster) -> None:
    """The executor extracts, not the agent; the archive stays."""
    (tmp_path / "words.txt").write_text("a")
    data = f"{web}/words.txt#sha256={digest_of(tmp_path / 'words.txt')}"
    service = {"job_url": f"{web}/job.zip", "job_sha256": digest_of(tmp_path / "job.zip").upper(), "data": data}

    code, text, (executor,) = run_files(service)

    assert 0 == code, text
    names = {path.name for path in Path(executor["directory"]).iterdir()}
    assert {"job.zip", "train.py", "words.txt"} <= names
    assert [False] * 3 == extracted_by_agent(cluster, executor)


def extracted_by_agent(cluster, executor):
    """Return for each file whether the agent was to extract it, from the operator API."""
    call = urllib.request.Request(
        f"http://{cluster.agents['agent-1'].address}/api/v1",
        b'{"type": "GET_EXECUTORS"}',
        {"Content-Type": "application/json", "Accept": "application/json"},
    )
    with urllib.request.urlopen(call, timeout=60) as answer:
        known = json.load(answer)["get_executors"]
    every = [item["executor_info"] for item in known.get("executors", []) + known.get("completed_executors", [])]
    (info,) = [info for info in every if info["executor_id"]["value"] == executor["id"]]
    return [uri["extract"] for uri in info["command"]["uris"]]


DATA_PROGRAM = """\
import os, sys
big = os.stat("d/big.bin")
print(big.st_ino, big.st_size, os.path.islink("d/big.bin"), open("d/words").read(), os.path.exists("d/words.zip"))
print(open(".keras/datasets/words.zip", "rb").read(2), os.listdir(".keras/datasets"))
"""


def test_six_tasks_share_one_copy_of_local_data(run_files, tmp_path: Path, web) -> None:
    """Records with a path, of a local path, a file URL and a web server."""
    size = 48 << 20
    (tmp_path / "train.py").write_text(DATA_PROGRAM)
    (tmp_path / "big.bin").write_bytes(os.urandom(1 << 20) * 48)
    with zipfile.ZipFile(tmp_path / "words.zip", "w") as archive:
        archive.writestr("words", "extracted")
    data = [
        {"url": "big.bin", "path": "d/big.bin"},
        {"url": (tmp_path / "words.zip").as_uri(), "path": "d/words.zip"},
        {"url": f"{web}/words.zip", "path": ".keras/datasets/words.zip", "extract": False},
    ]
    service = {"strategy": "independent", "job_url": "train.py", "data": data}

    code, text, started = run_files(service, worker={"count": 6})

    assert (0, 6) == (code, len(started)), text
    copies = {Path(each["directory"], "d", "big.bin").resolve() for each in started}
    assert {(size, 0o100444)} == {(path.stat().st_size, path.stat().st_mode) for path in copies}
    (copy,) = copies
    for each in started:
        sandbox = Path(each["directory"])
        lines = (sandbox / "stdout").read_text().splitlines()
        assert [f"{copy.stat().st_ino} {size} True extracted True", "b'PK' ['words.zip']"] == lines
        assert sum(path.lstat().st_blocks for path in sandbox.rglob("*")) * 512 < size / 8
    assert (tmp_path / "big.bin").stat().st_mode & 0o222


@pytest.mark.parametrize("kind", ["job", "data"])
def test_wrong_digest_fails_job_at_once(run_files, tmp_path: Path, web, kind: str) -> None:
    """With both digests, and without a second launch."""
    job = {"job_url": f"{web}/job.zip"}
    service = {"job": {**job, "job_sha256": OTHER}, "data": {"data": f"{web}/job.zip#sha256={OTHER}"}}[kind]

    code, text, (executor,) = run_files(service)

    assert 1 == code
    assert f"job.zip: wrong SHA-256 digest {digest_of(tmp_path / 'job.zip')}; expected {OTHER}" in text
    assert "a relaunch would end in the same way" in text
    assert not (Path(executor["directory"]) / "train.py").exists()


def test_changed_bundle_never_starts(run_files, tmp_path: Path, web) -> None:
    good = build_bundle()
    changed = bytearray(good.read_bytes())
    changed[len(changed) // 2] ^= 1
    bundle = tmp_path / "changed.pyz"
    bundle.write_bytes(changed)

    url = f"{web}/changed.pyz"
    code, text, launched = run_files({"job_url": f"{web}/job.zip"}, {"url": url, "sha256": digest_of(good)})

    assert 1 == code
    assert f"{url}: wrong SHA-256 digest; expected {digest_of(good)}" in text
    assert f"changed.pyz: wrong SHA-256 digest {digest_of(bundle)}; expected {digest_of(good)}" in text
    assert 2 >= len(launched)  # a relaunch may precede the report of the executor's exit
    assert not any((Path(each["directory"]) / "executor.log").exists() for each in launched)


def test_mesos_extracts_if_chosen(run_files, web, cluster) -> None:
    code, text, (executor,) = run_files({"job_url": f"{web}/job.zip"}, {"extract": "mesos"})

    assert 0 == code, text
    assert [False, True] == extracted_by_agent(cluster, executor)


def with_volumes(folder: Path, command: str, *volumes: dict[str, str]) -> Path:
    path: Path = options(folder, command, **ALONE, executor={"volumes": "mesos"})
    path.write_text(json.dumps({**json.loads(path.read_text()), "volumes": volumes}))
    return path


def test_volumes_are_linked(run_process, tmp_path: Path, cluster) -> None:
    """A cluster's file runs on a laptop, where Mesos refuses volumes."""
    host = tmp_path / "host"
    host.mkdir()
    (host / "words").write_text("a b")
    linked = {"host_path": str(host), "container_path": "in/data", "mode": "RO"}
    path = with_volumes(
        tmp_path,
        f"cp in/data/words {host}/copy && readlink in/data",
        linked,
        {"host_path": str(host), "container_path": str(host)},
    )

    code, out, err = run_process("local", "run", path, "--dir", cluster.directory)

    assert 0 == code, out + err
    assert f"volumes.0.mode: RO is not enforced: the volume is a link, and tasks may write to {host}" in err
    assert ("a b", f"    worker-0 | {host}") == ((host / "copy").read_text(), out.splitlines()[1])


def test_missing_volume_never_launches(run_process, tmp_path: Path, cluster) -> None:
    before = len(executors(cluster))
    path = with_volumes(tmp_path, "true", {"host_path": str(tmp_path / "none"), "container_path": "data"})

    code, _, err = run_process("local", "run", path, "--dir", cluster.directory)

    assert (1, before) == (code, len(executors(cluster)))
    assert f"volumes.0.host_path: {tmp_path / 'none'}: does not exist on this machine" in err


def test_restarted_task_has_its_further_ports_again(run_process, tmp_path: Path, cluster) -> None:
    """In the command and in the environment, and free for the program to listen."""
    listen = "import socket, sys; [socket.create_server(('', int(port))) for port in sys.argv[1:]]"
    seen = f"{tmp_path}/seen"
    command = (
        f"echo {{port}} {{port_1}} {{port_2}} >> {seen}; echo $PORT0 $PORT1 $PORT2 >> {seen}; "
        f'python -c "{listen}" $PORT0 $PORT1 $PORT2 || exit 3; [ $(wc -l < {seen}) -gt 2 ] || kill -9 $$'
    )
    path = options(tmp_path, command, parameter_server={"count": 0}, worker={"count": 1, "ports": 3})

    code, out, err = run_process("local", "run", path, "--dir", cluster.directory)

    lines = Path(seen).read_text().splitlines()
    assert (0, 4, 1) == (code, len(lines), len(set(lines))), (out + err, lines)
    assert 3 == len({port for port in lines[0].split() if 12200 <= int(port) < 12300})
