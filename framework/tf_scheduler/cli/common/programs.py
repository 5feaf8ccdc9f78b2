"""Programs and data of a job on this machine: pack, copy and read them."""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import PathFinder
from itertools import chain, islice
from pathlib import Path

from tf_executor.contract.text import format_size
from tf_executor.user.archive import ArchiveError, extract
from tf_scheduler.convert.program import imported_modules
from tf_scheduler.errors import OptionsError, Problem

from .folders import read_bytes, state_home

# --- data of programs


#: Nanoseconds without use (access time) after which a copy of data is removed.
_UNUSED = 30 * 86_400 * 1_000_000_000
#: Bytes of a folder of data from which tasks use the folder itself: two copies may not fit the disk.
MAX_COPY = 1_000_000_000


def read_only_copy(source: Path) -> Path:
    """Return a read-only copy of a file or folder of data, which all tasks share.

    The data is copied again only if it has changed, or if the times of the copy show that the copy was changed. Raises
    OptionsError.
    """
    home, now, content = state_home() / "data", time.time_ns(), _content(source)
    version = hashlib.sha256(f"{source.resolve()}\0{content}".encode()).hexdigest()[:16]
    target = home / f"{version}-{source.resolve().name}"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not target.exists() or _content(target) != content:
        part = home / f"{target.name}.{os.getpid()}.part"
        # Shares blocks if the file system can, and keeps holes.
        copy = ("cp", "-RL", "--preserve=timestamps", "--reflink=auto", "--")
        done = subprocess.run([*copy, source, part], capture_output=True, text=True, check=False)
        if done.returncode:
            _remove_copy(part)
            raise OptionsError([Problem("service.data", f"cannot copy {source}: {done.stderr.strip()}")])
        subprocess.run(["chmod", "-R", "a=rX", "--", part], check=True)
        _remove_copy(target)
        part.rename(target)
    os.utime(target, ns=(now, source.stat().st_mtime_ns))
    for copied in home.iterdir():
        with suppress(FileNotFoundError):  # another run removes it, too
            if copied.stat().st_atime_ns < now - _UNUSED:
                _remove_copy(copied)
    return target


def _content(path: Path) -> list[tuple[str, int, int]]:
    """Return name, size and time of change of a file, or of each file in a folder."""
    inner = (Path(root, name) for root, _, files in os.walk(path, followlinks=True) for name in files)
    statuses = ((each, each.stat()) for each in (inner if path.is_dir() else (path,)) if each.exists())
    return sorted((os.path.relpath(each, path), status.st_size, status.st_mtime_ns) for each, status in statuses)


def _remove_copy(path: Path) -> None:
    if path.is_dir():  # its folders are read-only
        subprocess.run(["chmod", "-R", "u+w", "--", path], capture_output=True, check=False)
        shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)


# --- folders of programs


#: Maximum size in bytes and number of files of a folder that is packed.
_MAX_FOLDER, _MAX_FILES = 64_000_000, 10_000
#: Endings and content of files with keys and passwords.
_KEY_SUFFIXES = {".jks", ".kdbx", ".key", ".keystore", ".p12", ".pfx", ".ppk"}
_SECRETS = re.compile(
    rb"PRIVATE KEY-----|PuTTY-User-Key-File-|aws_secret_access_key\s*=|^machine\s+\S+\s+login\s", re.M
)
#: Maximum size in bytes of a file that is searched for secrets; keys are small.
_MAX_SECRET = 1 << 16
#: Names and beginning of the options files that `try` writes.
_ATTEMPT, _ATTEMPT_TEXT = re.compile(r".+-try(-\d+)?\.json"), b'{\n  "service": {\n    "name":'
#: Time of all packed files (1980-01-02), so that equal folders have equal archives; .zip files have no older one.
_PACKED_TIME = 315_619_200


def pack_folder(folder: Path, files: Sequence[Path]) -> Path:
    """Return an archive of files of a folder, named after its content.

    Archives stay in the state folder, for later launches and for `history reproduce`.
    """
    home, name = state_home() / "programs", folder.resolve().name or "program"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=home, suffix=".part") as part:
        with tarfile.open(fileobj=part, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path in files:
                info, status = tarfile.TarInfo(path.relative_to(folder).as_posix()), path.stat()
                info.size, info.mtime = status.st_size, _PACKED_TIME
                info.mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
                with path.open("rb") as content:
                    archive.addfile(info, content)
        part.seek(0)
        digest = hashlib.sha256(part.read()).hexdigest()
        target = home / f"{name}-{digest[:16]}.tar"
        with suppress(FileExistsError):  # the same content
            target.hardlink_to(part.name)
    return target


def size_problem(files: Sequence[Path]) -> str:
    """Return why files are too many or too large to be packed; empty if not."""
    if len(files) > _MAX_FILES:
        return f"the folder has more than {_MAX_FILES} files"
    total = sum(path.stat().st_size for path in files)
    return f"the folder has {format_size(total)}, more than {format_size(_MAX_FOLDER)}" if total > _MAX_FOLDER else ""


def program_files(program: Path) -> list[str]:
    """Return the names of a program's files in the working directory of tasks.

    For a folder: `folder_files`. For an archive: its content, and its own name. Raises OptionsError
    for a damaged archive.
    """
    if program.is_dir():
        return [path.relative_to(program).as_posix() for path in folder_files(program)]
    names = [program.name]
    try:
        if zipfile.is_zipfile(program):
            with zipfile.ZipFile(program) as archive:
                names += archive.namelist()
        elif tarfile.is_tarfile(program):
            with tarfile.open(program) as pack:
                names += pack.getnames()
    except (OSError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise OptionsError(f"{program}: {error}") from error
    return [name.removeprefix("./").rstrip("/") for name in names]


_MISSING = "import importlib.util, sys; print(*(n for n in sys.argv[1:] if importlib.util.find_spec(n) is None))"
#: Maximum number of files of a program that are scanned.
_MAX_SOURCES = 100


def program_sources(
    program: Path, folder: Path | None = None, imports: Callable[[str], set[str]] = imported_modules
) -> dict[str, str]:
    """Return file name -> source of a program and of its modules in a folder.

    File names are relative to `folder`, by default the program's folder. `imports` returns the modules of a source that
    are followed. Raises OptionsError if the program cannot be read.
    """
    waiting, sources, folder = [program], dict[str, str](), folder or program.parent
    while waiting and len(sources) < _MAX_SOURCES:
        path = waiting.pop(0)
        name = os.path.relpath(path, folder)
        if name not in sources:
            sources[name] = read_bytes(path).decode(errors="replace")
            for module in sorted(imports(sources[name])):
                waiting += _module_files(module, path.parent if module.startswith(".") else folder)
    return sources


def import_root(program: Path) -> Path:
    """Return the folder from which a program's imports work: its own, or a parent."""
    folder = program.absolute().parent
    imports = imported_modules(read_bytes(program).decode(errors="replace"))
    level = max((len(name) - len(name.lstrip(".")) for name in imports), default=0)
    roots = [folder.parents[level - 1] if 0 < level < len(folder.parts) else folder]
    tops = {name.partition(".")[0] for name in imports} - {"", *sys.stdlib_module_names}
    installed = [path for path in sys.path if Path(path).resolve() not in (Path.cwd(), *folder.parents)]
    lacking = {name for name in tops if not (has_module(folder, name) or PathFinder.find_spec(name, installed))}
    for parent in folder.parents:
        is_shared, own = is_shared_folder(parent), folder.parts[len(parent.parts)]
        if any(has_module(parent, name) for name in (lacking & {own} if is_shared else lacking)):
            roots.append(parent)
        if is_shared or len(roots) > 1:
            break
    return min(roots, key=lambda root: len(root.parts))


def has_module(folder: Path, name: str) -> bool:
    """Whether a folder has a module or a package of this name."""
    return (folder / f"{name}.py").is_file() or any((folder / name).glob("*.py"))


def _module_files(module: str, folder: Path) -> Iterator[Path]:
    """Yield the files of a module and its packages, if they are below the folder."""
    name = module.lstrip(".")
    for _ in range(len(module) - len(name) - 1):
        folder = folder.parent
    for part in name.split("."):
        folder = folder / part
        candidates = (folder.with_name(f"{part}.py"), folder / "__init__.py")
        yield from (path for path in candidates if path.is_file())


def missing_modules(python: str, names: Sequence[str]) -> list[str]:
    """Return which modules an interpreter lacks; packages of users do not count."""
    with suppress(OSError):
        done = subprocess.run([python, "-I", "-c", _MISSING, *names], capture_output=True, text=True, check=False)
        return done.stdout.split()
    return []


def is_shared_folder(folder: Path) -> bool:
    """Whether a folder holds much more than one program, such as `~`, `/` or `/tmp`."""
    path, homes = folder.resolve(), {Path.home().resolve(), *(Path(each.pw_dir) for each in pwd.getpwall())}
    is_temporary = path == Path(tempfile.gettempdir()).resolve() or path.stat().st_mode & stat.S_ISVTX
    return bool(is_temporary) or any(path in (home, *home.parents) for home in homes)


def folder_files(folder: Path, apart: Collection[str] = ()) -> list[Path]:
    """Return the files to pack: those that git does not ignore; without git, all.

    Omits files with an `unpacked_reason`, and the folders `apart`. At most one file more than allowed is returned.
    """
    names, excluded = _git_files(folder) if shutil.which("git") else [], {folder / name for name in apart}
    # Without names, git does not know what is ignored.
    paths = chain.from_iterable(_files(folder / name, folder, excluded) for name in names or ("",))
    return sorted(set(islice((path for path in paths if path.is_file()), _MAX_FILES + 1)))


def unpacked_reason(path: Path, folder: Path) -> str:
    """Return why a file or folder in `folder` is never packed; empty if it may be."""
    parents = (each for each in reversed((path, *path.parents)) if folder in each.parents)
    return next((why for each in parents if (why := _exclusion(each))), "")


def _exclusion(path: Path) -> str:
    """Return why an entry of a packed folder is omitted; empty if it is not."""
    if path.name.startswith("."):
        return f"{path.name} is hidden"
    if path.is_dir():
        own = (Path(os.environ.get(f"XDG_{name}_HOME", "/"), "dcos-tensorflow") for name in ("STATE", "CACHE", "DATA"))
        is_cache = path.name == "__pycache__" or (path / "CACHEDIR.TAG").exists()
        kinds = {"a link to a folder": path.is_symlink(), "a cache": is_cache, "of dcos-tensorflow": path in own}
        kinds["a virtual environment"] = (path / "pyvenv.cfg").exists()
        return next((f"{path.name} is {kind}" for kind, is_kind in kinds.items() if is_kind), "")
    return f"{path.name} {why}" if (why := _private_content(path)) else ""


def _private_content(path: Path) -> str:
    """Return what a file holds that tasks must not get; empty if nothing."""
    if path.suffix in _KEY_SUFFIXES:
        return "holds a key"
    with suppress(OSError):
        if path.suffix != ".py" and path.is_file() and path.stat().st_size <= _MAX_SECRET:
            content = path.read_bytes()
            if _SECRETS.search(content):
                return "holds a key or password"
            if _ATTEMPT.fullmatch(path.name) and content.startswith(_ATTEMPT_TEXT):
                return "is an options file of `try`"
    return ""


#: The author of a repository may name programs in its settings; no program is started to list files.
_GIT_SETTINGS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")


def _git_files(folder: Path, *repository: str) -> list[str]:
    """Return files that git does not ignore; none without repository or .gitignore."""
    command = ["git", *_GIT_SETTINGS, "-C", str(folder), *repository, "ls-files", "-z", "--cached", "--others"]
    listed = subprocess.run(
        [*command, "--exclude-standard"], capture_output=True, check=False, env={**os.environ, "GIT_ALLOW_PROTOCOL": ""}
    ).stdout
    names = [os.fsdecode(name) for name in listed.split(b"\0") if name]
    if names or repository or not (folder / ".gitignore").is_file():
        return names
    with tempfile.TemporaryDirectory() as home:  # an empty repository of the folder, which may be in no other
        subprocess.run(["git", "init", "--quiet", "--bare", home], capture_output=True, check=False)
        return _git_files(folder, f"--git-dir={home}", "--work-tree=.")


def _files(path: Path, folder: Path, apart: set[Path]) -> Iterator[Path]:
    """Yield the file, or the files of the folder (such as a nested repository)."""
    if path != folder and (unpacked_reason(path, folder) or apart.intersection(path.parents)):
        return
    if path.is_file():
        yield path
    for root, folders, files in os.walk(path):
        inner = [Path(root, name) for name in folders]
        folders[:] = [each.name for each in inner if each not in apart and not _exclusion(each)]
        yield from (Path(root, name) for name in files if not _exclusion(Path(root, name)))


@contextmanager
def program_folder(program: Path) -> Iterator[Path]:
    """Yield a program's folder: the program, an extracted archive, or a file's folder.

    Raises OptionsError for a damaged archive.
    """
    with tempfile.TemporaryDirectory() as home:
        try:
            is_extracted = program.is_file() and extract(program, Path(home))
        except ArchiveError as error:
            raise OptionsError(str(error)) from error
        yield Path(home) if is_extracted else program if program.is_dir() else program.parent
