"""Unpacks archives that nobody vouches for: inside one folder, files, folders and links only, and not without end.

Standard library only, Python 3.6: the part of the executor that runs in the user's Python has it, too. Older Pythons
extract whatever an archive says (PEP 706), so everything is checked here, before anything of it is written.
"""

# ruff: noqa: PTH114, PTH118, PTH120 - names of strangers are texts: pathlib would tidy them before they are judged
import gzip
import os
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
#: Links that are followed to find out where one leads, as in Linux.
_MOST_HOPS = 40
#: Bytes and folders of a path: of a longer one the system would not say whether it is a link (PATH_MAX).
_LONGEST_PATH, _MOST_FOLDERS = 4000, 255
#: Bytes of a name or of an extended header, which are read into memory whole.
_LONGEST_HEADER = 1 << 20
_PIECE = 1 << 20


class ArchiveError(Exception):
    """The text names the archive and what is wrong with it."""


class Limits(NamedTuple):
    """What is a bomb: beyond `members`, or above `small` bytes and `ratio` times the archive's own size."""

    members: int = 1000000
    ratio: int = 200
    small: int = 1 << 30


#: What a task may unpack.
LIMITS = Limits()


def extract(archive: Path, folder: Path, limits: Limits = LIMITS) -> bool:
    """Unpack a .zip, .tar, .tar.gz, .tgz, .tar.bz2, .tbz2, .tar.xz, .txz or .gz file, judged by its name as Mesos does.

    Return False if it is none of these. Raise ArchiveError; then nothing of it is written but for a .gz file or a
    damaged archive, whose content shows that late.
    """
    name = archive.name
    lower = name.lower()
    kinds = ((TAR, _tar), ((".zip",), _zip), ((".gz",), _gzip))
    unpack = next((unpack for suffixes, unpack in kinds if lower.endswith(suffixes)), None)
    if unpack is None:
        return False
    try:
        unpack(archive, folder, _Budget(archive.stat().st_size, folder, limits))
    except _RefusalError as error:
        raise ArchiveError(f"{name} is not extracted: {error}") from None
    except Exception as error:  # readers of damaged files raise whatever comes up
        raise ArchiveError(f"{name} cannot be extracted: {str(error) or type(error).__name__}") from error
    return True


class _RefusalError(Exception):
    """It could be extracted, but is not."""


class _Budget:
    """How much may be written."""

    def __init__(self, packed: int, folder: Path, limits: Limits) -> None:
        self._bomb = max(limits.small, limits.ratio * packed)
        self._free = shutil.disk_usage(str(folder)).free
        self._most, self._members, self._bytes = limits.members, 0, 0

    def member(self, size: int) -> None:
        """One more."""
        self._members += 1
        if self._members > self._most:
            raise _RefusalError(f"it has more than {self._most} members")
        self.take(size)

    def take(self, size: int) -> None:
        """Bytes more."""
        self._bytes += size
        if self._bytes > self._free:
            raise _RefusalError(f"it needs more than the {self._free} bytes that are free on the disk")
        if self._bytes > self._bomb:
            raise _RefusalError(f"it grows beyond {self._bomb} bytes, far more than its own size")


class _Places:
    """Where the names of an archive lead, with the links that it brings and those that are there.

    No place changes while the archive is written: what is a link stays that link, and is nothing before.
    """

    def __init__(self, folder: Path) -> None:
        self._root = os.path.realpath(str(folder))
        self._links: Dict[str, str] = {}

    def bring(self, name: str, target: str) -> None:
        """A link that the archive has. It must be known before anything is judged."""
        if self._links.setdefault(self._place(name), target) != target:
            raise _RefusalError(f"{name} is two different links")

    def judge(self, name: str) -> None:
        """A file or folder: it is inside, by its name and by the links that are there, and behind none that comes."""
        followed = self._follow(name, name)[1]
        ours = next((place for place in followed if place in self._links), None)
        if ours is not None:
            is_itself = ours == self._place(name)
            raise _RefusalError(f"{name} {'is two things, one of them a link' if is_itself else _BEHIND}")

    def judge_link(self, name: str, target: str) -> None:
        """A link: it leads inside, also before others are there, and lies where nothing else is."""
        folder = os.path.dirname(name)
        if self._follow(folder, name)[0] != self._place(folder):
            raise _RefusalError(f"{name} {_BEHIND}")
        self._follow(name, name)
        self._demand_inside(self._place(os.path.join(folder, target)), name)
        place = self._place(name)
        if os.path.lexists(place) and not (os.path.islink(place) and os.readlink(place) == target):
            raise _RefusalError(f"{name} would be a link, but is there already")

    def judge_hard_link(self, name: str, target: str) -> None:
        """Another name of a file: a link would be copied to where it leads elsewhere (link(2))."""
        self.judge(name)
        if self._follow(target, name)[1]:
            raise _RefusalError(f"{name} is a hard link to a link, or behind one")

    def _place(self, name: str) -> str:
        return os.path.normpath(os.path.join(self._root, name))

    def _follow(self, path: str, name: str) -> Tuple[str, List[str]]:
        """Where it leads, and the places of the links on the way."""
        todo, at, followed = [path], self._root, []  # type: Tuple[List[str], str, List[str]]
        while todo:
            text = todo.pop()
            first, _, rest = text.partition("/")
            todo += [rest.lstrip("/")] if rest else []
            place = os.path.join(at, first)
            target = None if first in ("", ".", "..") else self._target(place)
            if target is not None:
                todo.append(target)
                followed.append(place)
            elif not text.startswith("/"):
                at = os.path.normpath(place)
            self._demand_inside("/" if text.startswith("/") or len(followed) > _MOST_HOPS else at, name)
        return at, followed

    def _demand_inside(self, place: str, name: str) -> None:
        if not (place + "/").startswith(self._root + "/"):
            raise _RefusalError(f"{name} would be written outside the working directory")
        if len(os.fsencode(place)) > _LONGEST_PATH or place.count("/") > _MOST_FOLDERS:
            raise _RefusalError(f"{name[:80]} ... is too long a path")

    def _target(self, place: str) -> Optional[str]:
        found = self._links.get(place)
        return os.readlink(place) if found is None and os.path.islink(place) else found


_BEHIND = "lies behind another link"


class _Info(tarfile.TarInfo):
    """A head. tarfile reads long names into memory, however long they say they are."""

    @classmethod
    def frombuf(cls, buf: Any, encoding: Any, errors: Any) -> Any:
        """See tarfile."""
        info = super().frombuf(buf, encoding, errors)
        if info.size > _LONGEST_HEADER and info.type in b"LKxgX":
            raise _RefusalError(f"it has a name of {info.size} bytes")
        return info


def _tar(archive: Path, folder: Path, budget: _Budget) -> None:
    with tarfile.open(str(archive), tarinfo=_Info) as tar:
        members: List[tarfile.TarInfo] = []
        for member in tar:
            budget.member(max(0, member.size))
            members.append(member)
        places = _Places(folder)
        for member in members:
            if member.issym():
                places.bring(member.name, member.linkname)
        for member in members:
            _judge(member, places)
        members.sort(key=tarfile.TarInfo.issym)  # while all else is written there is no link that could lead it away
        if hasattr(tarfile, "data_filter"):
            tar.extractall(str(folder), members, filter="data")
        else:
            tar.extractall(str(folder), [_plain(member) for member in members])  # noqa: S202 - judged


def _judge(member: tarfile.TarInfo, places: _Places) -> None:
    if not (member.isfile() or member.isdir() or member.islnk() or member.issym()):
        raise _RefusalError(f"{member.name} is no file, no folder and no link")
    if member.issym():
        places.judge_link(member.name, member.linkname)
    elif member.islnk():
        places.judge_hard_link(member.name, member.linkname)
    else:
        places.judge(member.name)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Ours, and with no more rights than a file of ours has."""
    member.mode = (member.mode & 0o755) | (0o700 if member.isdir() else 0o600)
    member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
    return member


def _zip(archive: Path, folder: Path, budget: _Budget) -> None:
    """A link becomes a file that says where it led."""
    with zipfile.ZipFile(str(archive)) as content:
        places = _Places(folder)
        for member in content.infolist():
            budget.member(member.file_size)
            places.judge(member.filename)
        for member in content.infolist():
            path = Path(content.extract(member, str(folder)))
            mode = (member.external_attr >> 16) & 0o755  # the high half is the Unix mode, if any
            if mode and not member.filename.endswith("/") and not path.is_symlink():
                path.chmod(mode | 0o600)


def _gzip(archive: Path, folder: Path, budget: _Budget) -> None:
    target = folder / archive.name[: -len(".gz")]
    _Places(folder).judge(target.name)
    try:
        with gzip.open(str(archive)) as source, target.open("wb") as output:
            for piece in iter(lambda: source.read(_PIECE), b""):
                budget.take(len(piece))
                output.write(piece)
    except Exception:
        target.unlink()
        raise
