"""Extract untrusted archives safely: inside one folder and limited in size.

Standard library only, Python 3.6. Python before 3.12 extracts any path of an archive (PEP 706), so all members are
checked here before anything is written.
"""

# ruff: noqa: PTH114, PTH118, PTH120 - names stay strings: pathlib would normalise them before the check
import gzip
import os
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
#: Maximum links to follow, as in Linux.
_MAX_LINKS = 40
#: Maximum bytes and depth of a path; for longer ones lstat fails (PATH_MAX).
_MAX_PATH, _MAX_DEPTH = 4000, 255
#: Maximum bytes of names and extended headers, which tarfile reads into memory: of a member, and of an archive.
_MAX_HEADER, _MAX_HEADERS = 1 << 16, 1 << 27
_CHUNK = 1 << 20


class ArchiveError(Exception):
    """The archive was not extracted, or only in part."""


class ArchiveLimits(NamedTuple):
    """Limits: `members`; bytes: the larger of `small` and `ratio` * archive size."""

    members: int = 1000000
    ratio: int = 200
    small: int = 1 << 30


#: Limits for tasks.
LIMITS = ArchiveLimits()


def extract(archive: Path, folder: Path, limits: ArchiveLimits = LIMITS) -> bool:
    """Extract an archive with a suffix that Mesos knows, such as .zip or .tar.gz.

    Return False for names other than .zip, .tar, .tar.gz, .tgz, .tar.bz2, .tbz2, .tar.xz, .txz and .gz. Raises
    ArchiveError. If an archive (other than a .gz file) breaks a rule, nothing is written. If an archive cannot be
    extracted, for example because it is damaged or has the members `f` and `f/g`, files may remain.
    """
    name = archive.name
    unpack = _extractor(name)
    if unpack is None:
        return False
    try:
        unpack(archive, folder, _Budget(archive.stat().st_size, folder, limits))
    except _RefusalError as error:
        raise ArchiveError(f"{name}: extraction refused: {error}") from None
    except Exception as error:  # readers of damaged files raise any exception
        raise ArchiveError(f"{name}: cannot extract: {str(error) or type(error).__name__}") from error
    return True


def is_archive(name: str) -> bool:
    """Return whether a file of this name is extracted."""
    return _extractor(name) is not None


class _RefusalError(Exception):
    """The archive violates a rule."""


class _Budget:
    """Budget of members and bytes."""

    def __init__(self, packed: int, folder: Path, limits: ArchiveLimits) -> None:
        self._bomb = max(limits.small, limits.ratio * packed)
        self._free = shutil.disk_usage(str(folder)).free
        self._max_members, self._members, self._bytes = limits.members, 0, 0
        self._header, self._global, self._headers = 0, 0, 0

    def member(self, size: int) -> None:
        """Count a member of `size` bytes."""
        self._members += 1
        if self._members > self._max_members:
            raise _RefusalError(f"more than {self._max_members} members")
        self._header = self._global  # global headers stay in memory
        self.take(size)

    def header(self, size: int, is_global: bool) -> None:
        """Count a name or extended header of the next member; `is_global`: of all later."""
        self._header += size
        self._headers += size
        self._global += size if is_global else 0
        if self._header > _MAX_HEADER:
            what = "names and extended headers of a member have"
            raise _RefusalError(f"{what} {self._header} bytes; the maximum is {_MAX_HEADER}")
        if self._headers > _MAX_HEADERS:
            raise _RefusalError(f"all names and extended headers have more than {_MAX_HEADERS} bytes")

    def take(self, size: int) -> None:
        """Count extracted bytes."""
        self._bytes += size
        if self._bytes > self._free:
            raise _RefusalError(f"needs more than the {self._free} bytes that are free on the disk")
        if self._bytes > self._bomb:
            raise _RefusalError(f"expands to more than {self._bomb} bytes")


class _Resolver:
    """Resolve names of the archive through its own links and existing links.

    Resolution stays valid during extraction: links stay links, and new links do not replace anything.
    """

    def __init__(self, folder: Path) -> None:
        self._root = os.path.realpath(str(folder))
        self._links: Dict[str, str] = {}

    def add_link(self, name: str, target: str) -> None:
        """Register a link of the archive; call it for all links before any check."""
        if self._links.setdefault(self._place(name), target) != target:
            raise _RefusalError(f"{name} occurs twice, as links with different targets")

    def check(self, name: str) -> None:
        """Check that a file or folder is inside and not behind a link of the archive."""
        followed = self._follow(name, name)[1]
        own = next((place for place in followed if place in self._links), None)
        if own is not None:
            is_itself = own == self._place(name)
            raise _RefusalError(f"{name} {'occurs both as a link and as a file or folder' if is_itself else _BEHIND}")

    def check_link(self, name: str, target: str) -> None:
        """Check that a link's target is inside, and that its own path is free."""
        folder = os.path.dirname(name)
        if self._follow(folder, name)[0] != self._place(folder):
            raise _RefusalError(f"{name} {_BEHIND}")
        self._follow(name, name)
        self._require_inside(self._place(os.path.join(folder, target)), name)
        place = self._place(name)
        if os.path.lexists(place) and not (os.path.islink(place) and os.readlink(place) == target):
            raise _RefusalError(f"{name} is a link, but another file of this name already exists")

    def check_hard_link(self, name: str, target: str) -> None:
        """Check a hard link; a symbolic link as target resolves differently (link(2))."""
        self.check(name)
        if self._follow(target, name)[1]:
            raise _RefusalError(f"{name} is a hard link to a symbolic link, or to a path below a symbolic link")

    def _place(self, name: str) -> str:
        return os.path.normpath(os.path.join(self._root, name))

    def _follow(self, path: str, name: str) -> Tuple[str, List[str]]:
        """Resolve a path; return the result and the links on the way."""
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
            self._require_inside("/" if text.startswith("/") or len(followed) > _MAX_LINKS else at, name)
        return at, followed

    def _require_inside(self, place: str, name: str) -> None:
        if not (place + "/").startswith(self._root + "/"):
            raise _RefusalError(f"{name} leads outside the working directory")
        if len(os.fsencode(place)) > _MAX_PATH or place.count("/") > _MAX_DEPTH:
            raise _RefusalError(f"path too long: {name[:80]} ...")

    def _target(self, place: str) -> Optional[str]:
        target = self._links.get(place)
        return os.readlink(place) if target is None and os.path.islink(place) else target


_BEHIND = "lies below a symbolic link"


class _Info(tarfile.TarInfo):
    """A header with a length limit, because tarfile reads long names into memory."""

    budget: _Budget

    @classmethod
    def frombuf(cls, buf: Any, encoding: Any, errors: Any) -> Any:
        """Parse a header block, see tarfile."""
        info = super().frombuf(buf, encoding, errors)
        if info.type in b"LKxgX":
            cls.budget.header(max(0, info.size), info.type == tarfile.XGLTYPE)
        return info


def _tar(archive: Path, folder: Path, budget: _Budget) -> None:
    with tarfile.open(str(archive), tarinfo=type("_CountedInfo", (_Info,), {"budget": budget})) as tar:
        members: List[tarfile.TarInfo] = []
        for member in tar:
            budget.member(max(0, member.size))
            member.pax_headers = {}  # already applied; comments would fill the memory
            members.append(member)
        resolver = _Resolver(folder)
        for member in members:
            if member.issym():
                resolver.add_link(member.name, member.linkname)
        for member in members:
            _check(member, resolver)
        members.sort(key=tarfile.TarInfo.issym)  # links last: no other member can follow them
        if hasattr(tarfile, "data_filter"):
            tar.extractall(str(folder), members, filter="data")
        else:
            tar.extractall(str(folder), [_plain(member) for member in members])  # noqa: S202 - checked


def _check(member: tarfile.TarInfo, resolver: _Resolver) -> None:
    if not (member.isfile() or member.isdir() or member.islnk() or member.issym()):
        raise _RefusalError(f"{member.name} is not a file, folder or link")
    if member.issym():
        resolver.check_link(member.name, member.linkname)
    elif member.islnk():
        resolver.check_hard_link(member.name, member.linkname)
    else:
        resolver.check(member.name)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Drop the member's owner and special permissions."""
    member.mode = (member.mode & 0o755) | (0o700 if member.isdir() else 0o600)
    member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
    return member


def _zip(archive: Path, folder: Path, budget: _Budget) -> None:
    """Extract a zip file; links become text files with their target."""
    with zipfile.ZipFile(str(archive)) as content:
        resolver = _Resolver(folder)
        for member in content.infolist():
            budget.member(member.file_size)
            resolver.check(member.filename)
        for member in content.infolist():
            path = Path(content.extract(member, str(folder)))
            mode = (member.external_attr >> 16) & 0o755  # the high half is the Unix mode, if any
            if mode and not member.filename.endswith("/") and not path.is_symlink():
                path.chmod(mode | 0o600)


def _extractor(name: str) -> Optional[Callable[[Path, Path, _Budget], None]]:
    kinds = ((TAR, _tar), ((".zip",), _zip), ((".gz",), _gzip))
    return next((unpack for suffixes, unpack in kinds if name.lower().endswith(suffixes)), None)


def _gzip(archive: Path, folder: Path, budget: _Budget) -> None:
    target = folder / archive.name[: -len(".gz")]
    _Resolver(folder).check(target.name)
    try:
        with gzip.open(str(archive)) as source, target.open("wb") as output:
            for chunk in iter(lambda: source.read(_CHUNK), b""):
                budget.take(len(chunk))
                output.write(chunk)
    except Exception:
        target.unlink()
        raise
