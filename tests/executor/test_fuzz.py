"""Random archives, and random answers of an agent to a real executor process."""

from __future__ import annotations

import gzip
import io
import os
import stat
import sys
import tarfile
import warnings
import zipfile
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import strategies as st

from kit.commands import ENVIRONMENT, run_program
from kit.fuzzing import BYTES, damaged, fuzz
from kit.payloads import a_payload
from kit.strange_mesos import Reply, StrangeMesos, answers, streams
from tf_executor.user.archive import ArchiveError, ArchiveLimits, extract

# --- archives

LIMITS = ArchiveLimits(members=20, ratio=50, small=1 << 18)
KINDS = [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
PARTS = ["a", "b", "..", ".", "", "/", "a" * 300, "\0", "\ud800", "é", "a b", "-rf", "~", "C:"]
PATHS = st.lists(st.sampled_from(PARTS) | st.text(max_size=4), min_size=1, max_size=4).map("/".join)
MEMBERS = st.tuples(PATHS, st.sampled_from(KINDS), PATHS, st.integers(0, 0o7777), st.binary(max_size=50))


def tar_of(members: list[Any], mode: str) -> bytes:
    packed = io.BytesIO()
    form: Any = f"w:{mode}"
    with tarfile.open(fileobj=packed, mode=form, errors="surrogatepass") as archive:
        for name, kind, link, permissions, content in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mode, info.size = kind, link, permissions, len(content)
            with suppress(ValueError):  # a name that tarfile cannot write
                archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def zip_of(members: list[Any]) -> bytes:
    packed = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # a name occurs twice
        for name, kind, _, permissions, content in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = (permissions | (stat.S_IFLNK if kind == tarfile.SYMTYPE else stat.S_IFREG)) << 16
            with suppress(ValueError):
                archive.writestr(info, content)
    return packed.getvalue()


@st.composite
def archives(draw: st.DrawFn) -> tuple[str, bytes]:
    """A name and the content of an archive, sometimes damaged."""
    members = draw(st.lists(MEMBERS, max_size=5))
    mode = draw(st.sampled_from(["", "gz", "bz2", "xz", "zip", "only gz"]))
    if mode == "zip":
        name, content = "a.zip", zip_of(members)
    elif mode == "only gz":
        name, content = "a.gz", gzip.compress(b"".join(part[4] for part in members) * draw(st.sampled_from([1, 9999])))
    else:
        name, content = f"a.tar.{mode}".rstrip("."), tar_of(members, mode)
    return name, draw(st.just(content) | damaged(content) | BYTES)


def test_fuzz_archives() -> None:
    """Extracted inside the folder, or refused with an error that names the archive."""

    def check(drawn: tuple[str, bytes]) -> None:
        name, content = drawn
        with TemporaryDirectory() as top:
            # Deep, so that a path with .. stays inside of `top`.
            folder = Path(top, "1", "2", "3", "4", "5", "work")
            folder.mkdir(parents=True)
            archive = Path(top) / name
            archive.write_bytes(content)
            before = set(Path(top).rglob("*"))
            problem = name
            try:
                extract(archive, folder, LIMITS)
            except ArchiveError as error:
                problem = str(error)
            assert problem.startswith(name)
            for path in set(Path(top).rglob("*")) - before:
                assert folder in path.parents, path
                status = path.lstat()
                assert stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode) or stat.S_ISLNK(status.st_mode)
                assert not stat.S_ISREG(status.st_mode) or status.st_mode & 0o7000 == 0
                assert folder.resolve() in (path.resolve(), *path.resolve().parents)

    fuzz(check, archives())


# --- agents

TASK = {
    "task_id": {"value": "worker-0__1"},
    "agent_id": {"value": "a"},
    "name": "worker-0",
    "data": b64encode(a_payload().encode()).decode(),
}
SUBSCRIBED = {
    "type": "SUBSCRIBED",
    "subscribed": {
        "executor_info": {"executor_id": {"value": "e"}},
        "framework_info": {"id": {"value": "f"}, "name": "f", "user": "u"},
        "agent_info": {"id": {"value": "a"}},
    },
}
EVENTS: list[dict[str, Any]] = [
    {"type": "LAUNCH", "launch": {"task": TASK}},
    {"type": "LAUNCH_GROUP", "launch_group": {"task_group": {"tasks": [TASK]}}},
    {"type": "ACKNOWLEDGED", "acknowledged": {"task_id": TASK["task_id"], "uuid": "AAAAAAAAAAAAAAAAAAAAAA=="}},
    {"type": "MESSAGE", "message": {"data": "e30="}},
    {
        "type": "KILL",
        "kill": {"task_id": TASK["task_id"], "kill_policy": {"grace_period": {"nanoseconds": 1}}},
    },
    {"type": "ERROR", "error": {"message": "no"}},
]
REPLIES = st.one_of([streams(SUBSCRIBED, event) for event in EVENTS]) | answers(SUBSCRIBED)


def test_fuzz_agent_of_executor(tmp_path: Path) -> None:
    """A real process: it ends in time when the agent says so, and logs no traceback."""
    with StrangeMesos() as agent:

        def check(replies: list[Reply]) -> None:
            agent.strange = {}
            # A held connection, and a head without end, take the executor longer than this test has.
            agent.script = [reply if b"\r\n\r\n" in reply.data else Reply(reply.data) for reply in replies]
            agent.script = [Reply(reply.data) if reply.ending == "hold" else reply for reply in agent.script]
            with TemporaryDirectory(dir=tmp_path) as sandbox:
                environment = {**ENVIRONMENT, **variables(agent.address, sandbox)}
                command = [sys.executable, "-m", "tf_executor"]
                run = run_program(*command, env=environment, cwd=sandbox, timeout=30, errors="replace")
                log = Path(sandbox, "executor.log").read_text(errors="replace")
            assert run.returncode in (0, 1), log
            assert "Traceback" not in log + run.stderr, log

        fuzz(check, st.lists(REPLIES, min_size=1, max_size=3), examples=5, shrink=False)


def variables(agent: str, sandbox: str) -> dict[str, str]:
    """The variables of an agent whose executor waits for it for three seconds."""
    return {
        "MESOS_AGENT_ENDPOINT": agent,
        "MESOS_FRAMEWORK_ID": "f",
        "MESOS_EXECUTOR_ID": "e",
        "MESOS_CHECKPOINT": "1",
        "MESOS_RECOVERY_TIMEOUT": "3secs",
        "MESOS_SUBSCRIPTION_BACKOFF_MAX": "10ms",
        "MESOS_SANDBOX": sandbox,
        "HOME": os.environ["HOME"],
    }
