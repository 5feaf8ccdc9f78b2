"""Programs and data of a job on this machine: pack, copy and read them."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path

from tf_executor.contract.text import format_size
from tf_executor.user.archive import ArchiveError, extract
from tf_scheduler.convert.program import imported_modules
from tf_scheduler.errors import OptionsError, Problem

from .folders import read_bytes, state_home

# --- data of programs


#: Nanoseconds without use (access time) after which a copy of a data file is removed.
_UNUSED = 30 * 86_400 * 1_000_000_000


def read_only_copy(file: Path) -> Path:
    """Return a read-only copy of a data file, which all tasks share.

    The file is copied again only if it has changed, or if the time of the copy shows that the copy was changed. Raises
    OptionsError.
    """
    home, now, status = state_home() / "data", time.time_ns(), file.stat()
    version = f"{file.resolve()}\0{status.st_size}\0{status.st_mtime_ns}"
    target = home / f"{hashlib.sha256(version.encode()).hexdigest()[:16]}-{file.name}"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not target.exists() or target.stat().st_mtime_ns != status.st_mtime_ns:
        part = home / f"{target.name}.{os.getpid()}.part"
        # Shares blocks if the file system can, and keeps holes.
        done = subprocess.run(["cp", "--reflink=auto", "--", file, part], capture_output=True, text=True, check=False)
        if done.returncode:
            part.unlink(missing_ok=True)
            raise OptionsError([Problem("service.data", f"cannot copy {file}: {done.stderr.strip()}")])
        part.chmod(0o444)
        part.replace(target)
    os.utime(target, ns=(now, status.st_mtime_ns))
    for copy in home.iterdir():
        with suppress(FileNotFoundError):  # another run removes it, too
            if copy.stat().st_atime_ns < now - _UNUSED:
                copy.unlink()
    return target


# --- folders of programs


#: Maximum size in bytes and number of files of a folder that is packed.
_MAX_FOLDER, _MAX_FILES = 64_000_000, 10_000
_LARGEST = 5
#: Folders that are never packed.
_EXCLUDED = {".git", ".venv", "__pycache__"}
#: Time of all packed files (1980-01-02), so that equal folders have equal archives; .zip files have no older one.
_PACKED_TIME = 315_619_200


def pack_folder(folder: Path) -> Path:
    """Return an archive of the folder's files, named after its content.

    Archives stay in the state folder, for later launches and for `history reproduce`.
    """
    home, name = state_home() / "programs", folder.resolve().name or "program"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=home, suffix=".part") as part:
        with tarfile.open(fileobj=part, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path in _folder_files(folder):
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


def folder_problem(folder: Path) -> str:
    """Return why a folder cannot be packed; empty if it can be packed."""
    files = _folder_files(folder)
    if len(files) > _MAX_FILES:
        return f"more than {_MAX_FILES} files; use a folder of its own for the program"
    sizes = sorted(((path.stat().st_size, path) for path in files), reverse=True)
    total = sum(size for size, _ in sizes)
    if total > _MAX_FOLDER:
        largest = ", ".join(f"{path.relative_to(folder)} {format_size(size)}" for size, path in sizes[:_LARGEST])
        limit = f"{format_size(total)} to pack, of at most {format_size(_MAX_FOLDER)}"
        ignore = "name it in .gitignore" if shutil.which("git") else "install git and name it in .gitignore"
        return f"{limit}; the largest files: {largest}; move data elsewhere, or {ignore}"
    return "" if files else "contains no files"


def program_files(program: Path) -> list[str]:
    """Return the names of a program's files in the working directory of tasks.

    For a folder: the packed files. For an archive: its content, and its own name. Raises OptionsError for a damaged
    archive.
    """
    if program.is_dir():
        return [path.relative_to(program).as_posix() for path in _folder_files(program)]
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


def _folder_files(folder: Path) -> list[Path]:
    """Return the files to pack: those that git does not ignore; without git, all.

    Links to folders are omitted. At most one file more than allowed is returned.
    """
    names = _git_files(folder) if shutil.which("git") else []
    # Without names, git does not know what is ignored.
    paths = chain.from_iterable(_files(folder / name) for name in names or ("",))
    files = (path for path in paths if path.is_file() and not _EXCLUDED.intersection(path.relative_to(folder).parts))
    return sorted(set(islice(files, _MAX_FILES + 1)))


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


def _files(path: Path) -> Iterator[Path]:
    """Yield the file, or the files of the folder (such as a nested repository)."""
    if path.is_file():
        yield path
    for root, folders, files in os.walk(path):
        folders[:] = [each for each in folders if each not in _EXCLUDED and not Path(root, each, "pyvenv.cfg").exists()]
        yield from (Path(root, name) for name in files)


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
