"""Archives of people who mean harm, each made for real."""

from __future__ import annotations

import gzip
import io
import os
import stat
import struct
import subprocess
import tarfile
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tf_executor.archive import LIMITS, ArchiveError, Limits, extract

SYM, HARD, FOLDER = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE
OUTSIDE = "would be written outside the working directory"
TIGHT = Limits(members=10, ratio=20, small=1 << 16)


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
    """The working directory; beside it nothing may change."""
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def refused(archive: Path, folder: Path, limits: Limits = LIMITS) -> str:
    """Why; nothing of it is there, nor anywhere beside."""
    before = sorted(folder.parent.rglob("*"))
    with pytest.raises(ArchiveError) as error:
        extract(archive, folder, limits)
    assert before == sorted(folder.parent.rglob("*"))
    assert str(error.value).startswith(archive.name)
    return str(error.value)


@pytest.mark.parametrize(
    "bad",
    [
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
    ],
    ids=lambda members: " ".join(f"{info.name}-{info.linkname}" for info in members),
)
def test_an_archive_that_reaches_outside_is_refused(tmp_path: Path, folder: Path, bad: list[tarfile.TarInfo]) -> None:
    """Before anything of it is written."""
    assert OUTSIDE in refused(tar(tmp_path / "job.tar.gz", member("good"), *bad), folder)


HARD_LINKED = "is a hard link to a link"
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
        ([member("l", FOLDER), member("o", SYM, "l/../../beside/x"), member("o"), member("l", SYM, "a/b")], "two"),
        ([member("l/f"), member("l", SYM, "a/b")], "lies behind another link"),
        ([member("o", SYM, "there/../y"), member("o"), member("there", SYM, "a/b/c")], "two"),
        ([member("there", SYM, "a/b/c")], "is there already"),
    ],
    ids=["copied", "later", "passed", "passed, that is there", "folder", "inside", "file", "that is there"],
)
def test_a_link_that_leads_elsewhere_for_a_while_is_refused(
    tmp_path: Path,
    folder: Path,
    has_filter: bool,
    bad: list[tarfile.TarInfo],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before anything of it is written, and the same by every Python."""
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
def test_whatever_links_archives_bring_nothing_is_written_beside(archives: list[list[tarfile.TarInfo]]) -> None:
    """By a Python that trusts them."""
    with tempfile.TemporaryDirectory() as top, pytest.MonkeyPatch.context() as patch:
        patch.delattr(tarfile, "data_filter", raising=False)
        folder = Path(top, "d", "e", "work")
        folder.mkdir(parents=True)
        for number, members in enumerate(archives):
            with suppress(ArchiveError):
                extract(tar(Path(top) / f"{number}.tar", *members), folder)
        beside = {str(path.relative_to(top)) for path in Path(top).rglob("*") if folder not in path.parents}
    assert {"d", "d/e", "d/e/work"} == {name for name in beside if not name.endswith(".tar")}


def test_a_path_too_long_to_be_looked_at_is_refused(tmp_path: Path, folder: Path) -> None:
    """A link that the system would not show could lie there."""
    assert "too long" in refused(tar(tmp_path / "job.tar", member("/".join("x" * 2500))), folder)


def test_an_archive_may_come_twice(tmp_path: Path, folder: Path) -> None:
    """Its links are there already, as it has them."""
    packed = tar(tmp_path / "a.tar", member("lib/a.1"), member("lib/a", SYM, "a.1"))
    for _ in range(2):
        assert extract(packed, folder)
    assert "x" == (folder / "lib" / "a").read_text()


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="no Python of the system's here")
def test_the_pythons_of_the_system_refuse_it_too(tmp_path: Path, folder: Path) -> None:
    """Some, as Debian 12's, have a tarfile that extracts whatever an archive says."""
    bad = [member(f"{DEEP}/s", SYM, "../" * 19 + "beside"), member("h", HARD, f"{DEEP}/s"), member("h/OWNED")]
    (tmp_path / "beside").mkdir()
    packed = tar(tmp_path / "job.tar", *bad)
    program = "import sys, pathlib, tf_executor.archive as a; a.extract(*map(pathlib.Path, sys.argv[1:]))"
    path = str(Path(__file__).parents[2] / "executor")
    ran = subprocess.run(
        ["/usr/bin/python3", "-B", "-c", program, packed, folder],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert HARD_LINKED in ran.stderr
    assert [] == [*folder.iterdir(), *(tmp_path / "beside").iterdir()]


@pytest.mark.parametrize("name", ["../outside", "/outside", "a/../../outside"])
def test_a_zip_that_reaches_outside_is_refused(tmp_path: Path, folder: Path, name: str) -> None:
    """zipfile itself would write it somewhere inside."""
    with zipfile.ZipFile(tmp_path / "job.zip", "w") as archive:
        archive.writestr("good", "x")
        archive.writestr(name, "x")
    assert OUTSIDE in refused(tmp_path / "job.zip", folder)


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_and_pipes_are_refused(tmp_path: Path, folder: Path, kind: bytes) -> None:
    """A reader of a pipe would wait for ever."""
    assert "special is no file, no folder and no link" in refused(
        tar(tmp_path / "a.tar", member("special", kind)), folder
    )


@pytest.mark.parametrize("kind", ["tar", "zip", "gz"])
def test_a_link_that_is_there_leads_no_archive_outside(tmp_path: Path, folder: Path, kind: str) -> None:
    """Of an archive before, or of ours to the files of secrets."""
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


def test_links_that_stay_inside_are_made(tmp_path: Path, folder: Path) -> None:
    """As programs are packed."""
    members = (member("lib/a.1"), member("lib/a", SYM, "a.1"), member("now", SYM, "lib"), member("b", HARD, "lib/a.1"))
    assert extract(tar(tmp_path / "a.tgz", *members, member("c", SYM, "now/../lib/a")), folder)
    assert ["x"] * 5 == [(folder / name).read_text() for name in ("lib/a.1", "lib/a", "now/a", "b", "c")]


def test_a_name_that_is_two_links_is_refused(tmp_path: Path, folder: Path) -> None:
    """The second could change where others lead that were judged."""
    found = refused(tar(tmp_path / "a.tar", member("a", SYM, "b"), member("a", SYM, "c")), folder)
    assert "a is two different links" in found


def test_a_link_behind_a_link_is_refused(tmp_path: Path, folder: Path) -> None:
    """No archiver makes it, and it has two names."""
    found = refused(tar(tmp_path / "a.tar", member("a", SYM, "b"), member("a/c", SYM, "../d")), folder)
    assert "a/c lies behind another link" in found


@pytest.mark.parametrize("suffix", ["tar.gz", "zip", "gz"])
def test_a_bomb_is_refused(tmp_path: Path, folder: Path, suffix: str) -> None:
    """A megabyte of zeros in a thousand bytes; a file that says nothing true of itself is cut off."""
    zeros = bytes(1 << 20)
    archive = tmp_path / f"bomb.{suffix}"
    if suffix == "tar.gz":
        tar(archive, member("zeros"), content=zeros)
    elif suffix == "zip":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
            made.writestr("zeros", zeros)
    else:
        archive.write_bytes(gzip.compress(zeros))
    assert "it grows beyond 65536 bytes, far more than its own size" in refused(archive, folder, TIGHT)
    assert extract(archive, folder, TIGHT._replace(small=1 << 21))


def test_more_members_than_anybody_needs_are_refused(tmp_path: Path, folder: Path) -> None:
    """Each costs an inode."""
    archive = tar(tmp_path / "a.tar", *(member(str(number)) for number in range(11)))
    assert "it has more than 10 members" in refused(archive, folder, TIGHT)


def test_what_does_not_fit_on_the_disk_is_not_begun(tmp_path: Path, folder: Path) -> None:
    """A sparse file of eight exabytes, as its head says, takes 1 kB in the archive."""
    head = member("huge")
    head.size = 2**63 - 1
    (tmp_path / "a.tar").write_bytes(head.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    assert "bytes that are free on the disk" in refused(tmp_path / "a.tar", folder)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_a_name_without_end_is_not_read(tmp_path: Path, folder: Path, kind: bytes) -> None:
    """tarfile would read it into memory."""
    head = member("././@LongLink", kind)
    head.size = 10 << 30
    (tmp_path / "a.tar").write_bytes(head.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    assert "it has a name of 10737418240 bytes" in refused(tmp_path / "a.tar", folder)


def test_a_zip_that_lies_about_sizes_fails(tmp_path: Path, folder: Path) -> None:
    """It gets no more than it has promised."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("zeros", bytes(1 << 20))
    whole = bytearray((tmp_path / "a.zip").read_bytes())
    struct.pack_into("<L", whole, whole.index(b"PK\1\2") + 24, 10)
    (tmp_path / "a.zip").write_bytes(whole)
    with pytest.raises(ArchiveError, match=r"a\.zip cannot be extracted: "):
        extract(tmp_path / "a.zip", folder)
    assert 10 >= sum(path.stat().st_size for path in folder.rglob("*"))


@PYTHONS
def test_no_rights_come_out_of_an_archive(
    tmp_path: Path, folder: Path, has_filter: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither set-user-id, nor writing for all, nor another's ownership."""
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
        found = (folder / name).stat()
        assert (0o755, os.getuid(), os.getgid()) == (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)


def test_what_is_no_archive_is_left_alone(tmp_path: Path, folder: Path) -> None:
    """By its name."""
    (tmp_path / "train.py").write_text("print()")
    assert not extract(tmp_path / "train.py", folder)


@given(data=st.data(), suffix=st.sampled_from(["tar", "tar.gz", "tar.xz", "tar.bz2", "zip", "gz"]))
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_archive_is_an_error_with_its_name(tmp_path: Path, folder: Path, data: Any, suffix: str) -> None:
    """Whatever bytes are wrong, and nothing is written beside the folder."""
    archive = tmp_path / f"a.{suffix}"
    if suffix == "zip":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
            made.writestr("a/b", "text")
    elif suffix == "gz":
        archive.write_bytes(gzip.compress(b"text"))
    else:
        with tarfile.open(archive, "w:" + suffix.partition(".")[2]) as packed:
            packed.addfile(member("a/b"))
            packed.addfile(member("link", SYM, "a/b"))
    content = bytearray(archive.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, min(len(content) - 1, 1100)))] = data.draw(st.integers(0, 255))
    archive.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        extract(archive, folder)
    except ArchiveError as error:
        told = str(error)
    else:
        told = f"a.{suffix} is as good as new"
    assert told.startswith(f"a.{suffix} ")
    assert {"work", archive.name} == {path.name for path in tmp_path.iterdir()}
    archive.unlink()
