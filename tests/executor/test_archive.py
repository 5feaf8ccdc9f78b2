"""Extraction of malicious archives."""

from __future__ import annotations

import gzip
import io
import os
import stat
import struct
import tarfile
import tempfile
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kit.commands import run_program
from kit.http_server import HttpServer
from tf_executor.user.archive import LIMITS, ArchiveError, ArchiveLimits, extract

SYM, HARD, FOLDER = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE
OUTSIDE = "leads outside the working directory"
TIGHT = ArchiveLimits(members=10, ratio=20, small=1 << 16)


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    return info


def tar(path: Path, *members: tarfile.TarInfo, content: bytes = b"x") -> Path:
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as archive:
        for info in members:
            info.size = len(content) if info.isreg() else 0
            archive.addfile(info, io.BytesIO(content) if info.isreg() else None)
    return path


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    """A working directory; nothing outside of it may change."""
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def refused(archive: Path, folder: Path, limits: ArchiveLimits = LIMITS) -> str:
    """Return the error; nothing of the archive was written."""
    before = sorted(folder.parent.rglob("*"))
    with pytest.raises(ArchiveError) as error:
        extract(archive, folder, limits)
    assert before == sorted(folder.parent.rglob("*"))
    assert str(error.value).startswith(archive.name)
    return str(error.value)


ESCAPES = [
    [member("../outside")],
    [member("/outside")],
    [member("a/../../outside")],
    [member("link", SYM, "../../outside")],
    [member("link", SYM, "/etc/passwd")],
    [member("link", SYM, ".."), member("link/outside")],
    [member("link", HARD, "../outside")],
    [member("link", HARD, "/etc/passwd")],
    # Each looks harmless for itself, by its letters.
    [member("a/b", FOLDER), member("a/b/up", SYM, ".."), member("out", SYM, "a/b/up/../..")],
    [member("out", SYM, "a/b/up/../.."), member("a/b/up", SYM, "..")],
    [member("up", SYM, "."), member("out", HARD, "up/../outside")],
    [member("loop", SYM, "loop")],
]


@pytest.mark.parametrize(
    "bad", ESCAPES, ids=lambda members: " ".join(f"{info.name}-{info.linkname}" for info in members)
)
def test_tar_with_outside_path_is_refused(tmp_path: Path, folder: Path, bad: list[tarfile.TarInfo]) -> None:
    assert OUTSIDE in refused(tar(tmp_path / "job.tar.gz", member("good"), *bad), folder)


HARD_LINKED = "is a hard link to a symbolic link, or to a path below a symbolic link"
DEEP = "/".join("x" * 20)
PYTHONS = pytest.mark.parametrize("has_filter", [True, False], ids=["as it is", "Python before PEP 706"])


@PYTHONS
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        # link(2) copies a link to the top, where it leads out.
        (
            [
                member(f"{DEEP}/s", SYM, "../" * 19 + "beside"),
                member("h", HARD, f"{DEEP}/s"),
                member("h/OWNED"),
            ],
            HARD_LINKED,
        ),
        ([member("h", HARD, "a/s"), member("a/s", SYM, "../good")], HARD_LINKED),
        ([member("a/b"), member("l", SYM, "a"), member("h", HARD, "l/b")], HARD_LINKED),
        ([member("a/b"), member("h", HARD, "there/b")], HARD_LINKED),
        # A folder is where the link will be that the others were judged by: until then it leads elsewhere.
        (
            [member("l", FOLDER), member("o", SYM, "l/../../beside/x"), member("o"), member("l", SYM, "a/b")],
            "a link",
        ),
        ([member("l/f"), member("l", SYM, "a/b")], "lies below a symbolic link"),
        ([member("o", SYM, "there/../y"), member("o"), member("there", SYM, "a/b/c")], "a link"),
        ([member("there", SYM, "a/b/c")], "already exists"),
    ],
    ids=["copied", "later", "passed", "passed, that is there", "folder", "inside", "file", "that is there"],
)
def test_link_that_leads_elsewhere_during_extraction_is_refused(
    tmp_path: Path,
    folder: Path,
    has_filter: bool,
    bad: list[tarfile.TarInfo],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not has_filter:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    (tmp_path / "beside").mkdir()
    (folder / "a").mkdir()
    (folder / "there").symlink_to("a")
    assert reason in refused(tar(tmp_path / "job.tar", member("good"), *bad), folder)


names = st.sampled_from(["a", "b", "a/b", "a/b/c", "b/c"])
targets = st.sampled_from(["a", "b", "a/b", "a/b/c", "..", "../..", "../../c", "b/../c"])
packed = st.lists(
    st.builds(member, names, st.sampled_from([tarfile.REGTYPE, FOLDER, SYM, HARD]), targets), min_size=2, max_size=6
)


@given(archives=st.lists(packed, min_size=1, max_size=2))
@example(archives=[[member("a/b/c", SYM, "../.."), member("b", HARD, "a/b/c"), member("b/c")]])
@example(archives=[[member("b", FOLDER), member("a", SYM, "b/../c"), member("a"), member("b", SYM, "a/b/c")]])
@settings(max_examples=150)
def test_random_links_write_nothing_outside(archives: list[list[tarfile.TarInfo]]) -> None:
    """Checked against a Python that trusts archives."""
    with tempfile.TemporaryDirectory() as top, pytest.MonkeyPatch.context() as patch:
        patch.delattr(tarfile, "data_filter", raising=False)
        folder = Path(top, "d", "e", "work")
        folder.mkdir(parents=True)
        for number, members in enumerate(archives):
            with suppress(ArchiveError):
                extract(tar(Path(top) / f"{number}.tar", *members), folder)
        beside = {str(path.relative_to(top)) for path in Path(top).rglob("*") if folder not in path.parents}
    assert {"d", "d/e", "d/e/work"} == {name for name in beside if not name.endswith(".tar")}


def test_path_beyond_system_limit_is_refused(tmp_path: Path, folder: Path) -> None:
    """lstat cannot tell whether such a path is a link."""
    assert "too long" in refused(tar(tmp_path / "job.tar", member("/".join("x" * 2500))), folder)


def test_extracting_twice_succeeds(tmp_path: Path, folder: Path) -> None:
    """The archive's links exist already."""
    packed = tar(tmp_path / "a.tar", member("lib/a.1"), member("lib/a", SYM, "a.1"))
    for _ in range(2):
        assert extract(packed, folder)
    assert "x" == (folder / "lib" / "a").read_text()


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="no Python of the system's here")
def test_system_pythons_refuse_unsafe_archive(tmp_path: Path, folder: Path) -> None:
    """Old Pythons, such as Debian 12's, extract any path (PEP 706)."""
    bad = [member(f"{DEEP}/s", SYM, "../" * 19 + "beside"), member("h", HARD, f"{DEEP}/s"), member("h/OWNED")]
    (tmp_path / "beside").mkdir()
    packed = tar(tmp_path / "job.tar", *bad)
    program = "import sys, pathlib, tf_executor.user.archive as a; a.extract(*map(pathlib.Path, sys.argv[1:]))"
    path = str(Path(__file__).parents[2] / "executor")
    ran = run_program("/usr/bin/python3", "-B", "-c", program, packed, folder, env={"PYTHONPATH": path}, timeout=60)
    assert HARD_LINKED in ran.stderr
    assert [] == [*folder.iterdir(), *(tmp_path / "beside").iterdir()]


@pytest.mark.parametrize("name", ["../outside", "/outside", "a/../../outside"])
def test_zip_with_outside_path_is_refused(tmp_path: Path, folder: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "job.zip", "w") as archive:
        archive.writestr("good", "x")
        archive.writestr(name, "x")
    assert OUTSIDE in refused(tmp_path / "job.zip", folder)


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_and_pipes_are_refused(tmp_path: Path, folder: Path, kind: bytes) -> None:
    """Reading a pipe would block forever."""
    assert "special is not a file, folder or link" in refused(tar(tmp_path / "a.tar", member("special", kind)), folder)


@pytest.mark.parametrize("kind", ["tar", "zip", "gz"])
def test_existing_link_does_not_lead_outside(tmp_path: Path, folder: Path, kind: str) -> None:
    (tmp_path / "secret").write_text("old")
    (folder / "link").symlink_to(tmp_path / "secret")
    archive = tmp_path / f"link.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as made:
            made.writestr("link", "new")
    elif kind == "tar":
        tar(archive, member("link"))
    else:
        archive.write_bytes(gzip.compress(b"new"))
    assert OUTSIDE in refused(archive, folder)
    assert "old" == (tmp_path / "secret").read_text()


def test_links_inside_folder_are_created(tmp_path: Path, folder: Path) -> None:
    members = (member("lib/a.1"), member("lib/a", SYM, "a.1"), member("now", SYM, "lib"), member("b", HARD, "lib/a.1"))
    assert extract(tar(tmp_path / "a.tgz", *members, member("c", SYM, "now/../lib/a")), folder)
    assert ["x"] * 5 == [(folder / name).read_text() for name in ("lib/a.1", "lib/a", "now/a", "b", "c")]


def test_name_with_two_links_is_refused(tmp_path: Path, folder: Path) -> None:
    message = refused(tar(tmp_path / "a.tar", member("a", SYM, "b"), member("a", SYM, "c")), folder)
    assert "a occurs twice, as links with different targets" in message


def test_link_behind_link_is_refused(tmp_path: Path, folder: Path) -> None:
    """The second link could redirect members that were checked before."""
    message = refused(tar(tmp_path / "a.tar", member("a", SYM, "b"), member("a/c", SYM, "../d")), folder)
    assert "a/c lies below a symbolic link" in message


@pytest.mark.parametrize("suffix", ["tar.gz", "zip", "gz"])
def test_archive_bomb_is_refused(tmp_path: Path, folder: Path, suffix: str) -> None:
    zeros = bytes(1 << 20)
    archive = tmp_path / f"bomb.{suffix}"
    if suffix == "tar.gz":
        tar(archive, member("zeros"), content=zeros)
    elif suffix == "zip":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
            made.writestr("zeros", zeros)
    else:
        archive.write_bytes(gzip.compress(zeros))
    assert "expands to more than 65536 bytes" in refused(archive, folder, TIGHT)
    assert extract(archive, folder, TIGHT._replace(small=1 << 21))


def test_too_many_members_are_refused(tmp_path: Path, folder: Path) -> None:
    """Each member costs an inode."""
    archive = tar(tmp_path / "a.tar", *(member(str(number)) for number in range(11)))
    assert "more than 10 members" in refused(archive, folder, TIGHT)


def test_archive_larger_than_free_disk_is_refused(tmp_path: Path, folder: Path) -> None:
    """A sparse member of eight exabytes takes 1 kB in the archive."""
    head = member("huge")
    head.size = 2**63 - 1
    (tmp_path / "a.tar").write_bytes(head.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    assert "bytes that are free on the disk" in refused(tmp_path / "a.tar", folder)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_huge_member_name_is_not_read(tmp_path: Path, folder: Path, kind: bytes) -> None:
    """tarfile reads names into memory."""
    head = member("././@LongLink", kind)
    head.size = 10 << 30
    (tmp_path / "a.tar").write_bytes(head.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    assert "names and extended headers of a member have 10737418240 bytes" in refused(tmp_path / "a.tar", folder)


HEADER = "of a member have"


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE])
@pytest.mark.parametrize(
    ("sizes", "reason"),
    [([60_000], ""), ([70_000], HEADER), ([40_000, 40_000], HEADER), ([4_000] * 20, HEADER)],
    ids=["short", "long", "two", "many"],
)
def test_long_headers_of_member_are_refused(
    tmp_path: Path, folder: Path, kind: bytes, sizes: list[int], reason: str
) -> None:
    """Each is read before the member, together with all global ones."""
    headers = (extended({f"comment{n}": "x" * size}, kind) for n, size in enumerate(sizes))
    (tmp_path / "a.tar").write_bytes(b"".join(headers) + member("a").tobuf() + bytes(1024))
    if reason:
        assert reason in refused(tmp_path / "a.tar", folder)
    else:
        assert extract(tmp_path / "a.tar", folder)


def extended(headers: dict[str, str], kind: bytes) -> bytes:
    return tarfile.TarInfo._create_pax_generic_header(headers, kind, "utf-8")  # type: ignore[attr-defined, no-any-return]


def test_global_headers_of_all_members_are_counted(tmp_path: Path, folder: Path) -> None:
    parts = [extended({f"k{n}": "x" * 4000}, tarfile.XGLTYPE) + member(str(n)).tobuf() for n in range(20)]
    (tmp_path / "a.tar").write_bytes(b"".join(parts) + bytes(1024))
    assert HEADER in refused(tmp_path / "a.tar", folder)


def test_headers_of_many_members_do_not_fill_memory(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """400 comments of 60 kB; they are forgotten one by one, and limited in all."""
    packed = tmp_path / "a.tgz"
    parts = (extended({"comment": "x" * 60_000}, tarfile.XHDTYPE) + member("a").tobuf() for _ in range(400))
    packed.write_bytes(gzip.compress(b"".join(parts) + bytes(1024)))
    tracemalloc.start()
    try:
        assert extract(packed, folder)
        assert tracemalloc.get_traced_memory()[1] < 6 << 20
    finally:
        tracemalloc.stop()
    monkeypatch.setattr("tf_executor.user.archive._MAX_HEADERS", 10 << 20)
    assert "all names and extended headers have more than 10485760 bytes" in refused(packed, folder)


def test_file_in_place_of_folder_fails(tmp_path: Path, folder: Path) -> None:
    """No rule forbids it: the first member may stay."""
    with pytest.raises(ArchiveError, match=r"a\.tar: cannot extract: "):
        extract(tar(tmp_path / "a.tar", member("f"), member("f/g")), folder)
    assert {"f"} >= {path.name for path in folder.iterdir()}


def test_zip_with_wrong_sizes_fails(tmp_path: Path, folder: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("zeros", bytes(1 << 20))
    whole = bytearray((tmp_path / "a.zip").read_bytes())
    struct.pack_into("<L", whole, whole.index(b"PK\1\2") + 24, 10)
    (tmp_path / "a.zip").write_bytes(whole)
    with pytest.raises(ArchiveError, match=r"a\.zip: cannot extract: "):
        extract(tmp_path / "a.zip", folder)
    assert 10 >= sum(path.stat().st_size for path in folder.rglob("*"))


@PYTHONS
# Python 3.12 and 3.13 have the filter and warn if it is not used.
@pytest.mark.filterwarnings("ignore:Python 3.14 will, by default, filter:DeprecationWarning")
def test_special_permissions_are_dropped(
    tmp_path: Path, folder: Path, has_filter: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_filter:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    tool = member("tool", mode=0o6777)
    tool.uid = tool.gid = 12345
    assert extract(tar(tmp_path / "a.tar", tool), folder)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        info = zipfile.ZipInfo("zipped")
        info.external_attr = (stat.S_IFREG | 0o6777) << 16
        made.writestr(info, "x")
    assert extract(tmp_path / "a.zip", folder)
    for name in ("tool", "zipped"):
        status = (folder / name).stat()
        assert (0o755, os.getuid(), os.getgid()) == (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)


def test_other_file_type_is_ignored(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "train.py").write_text("print()")
    assert not extract(tmp_path / "train.py", folder)


@given(data=st.data(), suffix=st.sampled_from(["tar", "tar.gz", "tar.xz", "tar.bz2", "zip", "gz"]))
@settings(max_examples=80)
def test_damaged_archive_raises_archive_error(data: Any, suffix: str) -> None:
    """Random damage never writes outside the folder."""
    with TemporaryDirectory() as name:
        damage_and_extract(Path(name), data, suffix)


def damage_and_extract(home: Path, data: Any, suffix: str) -> None:
    folder, archive = home / "work", home / f"a.{suffix}"
    folder.mkdir()
    if suffix == "zip":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
            made.writestr("a/b", "text")
    elif suffix == "gz":
        archive.write_bytes(gzip.compress(b"text"))
    else:
        mode: Any = "w:" + suffix.partition(".")[2]
        with tarfile.open(archive, mode) as packed:
            packed.addfile(member("a/b"))
            packed.addfile(member("link", SYM, "a/b"))
    content = bytearray(archive.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, min(len(content) - 1, 1100)))] = data.draw(st.integers(0, 255))
    archive.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        extract(archive, folder)
    except ArchiveError as error:
        result = str(error)
    else:
        result = f"a.{suffix}: extracted"
    assert result.startswith(f"a.{suffix}: ")
    assert {"work", archive.name} == {path.name for path in home.iterdir()}


def attacks(folder: Path) -> dict[str, str]:
    """Write malicious archives; return the reason for the refusal of each, by name."""
    reasons = {tar(folder / f"escape-{n}.tar.gz", member("good"), *bad).name: OUTSIDE for n, bad in enumerate(ESCAPES)}
    with zipfile.ZipFile(folder / "escape.zip", "w") as made:
        made.writestr("good", "x")
        made.writestr("../outside", "x")
    tar(folder / "pipe.tar", member("good"), member("special", tarfile.FIFOTYPE))
    bomb = member("good/zeros")
    bomb.size = 2**63 - 1
    (folder / "bomb.tar").write_bytes(bomb.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    name = member("././@LongLink", tarfile.GNUTYPE_LONGNAME)
    name.size = 10 << 30
    (folder / "name.tar").write_bytes(name.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    (folder / "damaged.tgz").write_bytes(b"no archive")
    return {
        **reasons,
        "escape.zip": OUTSIDE,
        "pipe.tar": "special is not a file, folder or link",
        "bomb.tar": "bytes that are free on the disk",
        "name.tar": "names and extended headers of a member have 10737418240 bytes",
        "damaged.tgz": "damaged.tgz: cannot extract",
    }


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """The address of a web server for the files of `tmp_path`."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with HttpServer(handler) as server:
        yield server.url


def test_agent_extracts_nothing_and_executor_refuses_attacks(scheduler: Any, tmp_path: Path, web: str) -> None:
    """From http to the executor of a real agent; no member of an archive is written."""
    for name, reason in attacks(tmp_path).items():
        task = name.replace(".", "-")
        scheduler.launch(task, "touch started", uris=[f"{web}/{name}"], unpack=[name])
        status = scheduler.statuses("TASK_STARTING", "TASK_STARTING", "TASK_FAILED")
        assert reason in status["message"], status
        assert 0 == scheduler.executor_exit()
        sandbox = scheduler.sandbox(task)
        assert (sandbox / name).is_file()
        assert {"good", "outside", "started"}.isdisjoint(path.name for path in sandbox.iterdir())
        assert not (sandbox.parent / "outside").exists()


def test_set_user_id_is_dropped_on_agent(scheduler: Any, tmp_path: Path, web: str) -> None:
    tar(tmp_path / "tool.tgz", member("tool", mode=0o6777))
    scheduler.launch("tool", "stat -c %a tool", uris=[f"{web}/tool.tgz"], unpack=["tool.tgz"])
    scheduler.statuses("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert 0 == scheduler.executor_exit()
    assert "755\n" == (scheduler.sandbox("tool") / "stdout").read_text()
