"""Local runs pack a folder in `job_url`, and link one copy of the files of `data`."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from jobs import options
from kit.commands import run_program
from tf_scheduler.cli.common.options_file import load_document, load_options, unpacked_hint
from tf_scheduler.cli.common.programs import folder_files, is_shared_folder, pack_folder, read_only_copy, size_problem
from tf_scheduler.errors import OptionsError
from tf_scheduler.model.spec import Uri
from tf_scheduler.options.load import data_has_addresses, resolve
from tf_scheduler.options.spec import to_spec


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A program with a package."""
    path = tmp_path / "mnist"
    (path / "lib").mkdir(parents=True)
    (path / "train.py").write_text("from lib import value\nprint(value)\n")
    (path / "lib" / "__init__.py").write_text("value = 'from the package'\n")
    return path


def test_data_is_copied_once(tmp_path: Path, state: Path) -> None:
    """Read-only; copied again only after a change; removed after 30 days."""
    source = tmp_path / "a b.npz"
    source.write_text("one")
    copy = read_only_copy(source)
    first = copy.stat()
    assert ("one", 0o100444) == (copy.read_text(), first.st_mode)

    assert first.st_ino == read_only_copy(source).stat().st_ino
    copy.chmod(0o644)
    copy.write_text("two")
    assert copy == read_only_copy(source)
    assert "one" == copy.read_text()

    source.write_text("three")
    other = read_only_copy(source)
    assert ("one", "three") == (copy.read_text(), other.read_text())
    os.utime(copy, (time.time() - 31 * 86_400,) * 2)
    read_only_copy(source)
    assert [other] == list((state / "dcos-tensorflow" / "data").iterdir())


def test_uncopied_data_is_reported(tmp_path: Path) -> None:
    """Without a partial copy; `cp` says why."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "gone").symlink_to("nowhere")

    with pytest.raises(OptionsError, match=r"service\.data: cannot copy \S+: cp: "):
        read_only_copy(tmp_path / "data")
    assert [] == list((tmp_path / "state" / "dcos-tensorflow" / "data").iterdir())


def test_local_data_is_linked(tmp_path: Path) -> None:
    """Under its own name; other files stay as they are."""
    (tmp_path / "a.npz").write_text("x")
    (tmp_path / "b").write_text("y")
    data = [
        {"url": "a.npz", "extract": False},
        {"url": (tmp_path / "b").as_uri(), "path": "d/b"},
        {"url": "b", "path": "own", "link": True},
        {"url": "http://h/c"},
    ]
    options = tmp_path / "options.json"
    options.write_text(json.dumps({"service": {"command": "true", "data": data}, "worker": {"count": 1}}))

    a, b, own, c = load_options(options).uris

    assert [("a.npz", False), ("d/b", True), ("own", True)] == [(uri.file_name, uri.extract) for uri in (a, b, own)]
    assert [True, True, True, False] == [uri.link for uri in (a, b, own, c)]
    assert (tmp_path / "b").as_uri() == own.value
    copies = [Path(uri.value.removeprefix("file://")) for uri in (a, b)]
    assert ["x", "y"] == [path.read_text() for path in copies]
    assert tmp_path / "state" / "dcos-tensorflow" / "data" == copies[0].parent
    assert load_options(options).uris == split_uris(load_document(options))


def split_uris(document: dict[str, Any]) -> tuple[Uri, ...]:
    """Return the files of a document for the scheduler, which no rule refuses."""
    return to_spec(resolve(document, {"executor": {"url": "file:///x"}}, [data_has_addresses])).uris


def pack(folder: Path) -> Path:
    return pack_folder(folder, folder_files(folder))


def git(folder: Path, *arguments: str) -> None:
    run_program("git", "-C", folder, *arguments, check=True)


def names(archive: Path) -> list[str]:
    with tarfile.open(archive) as content:
        return content.getnames()


def test_folder_is_packed_without_other_files(folder: Path, tmp_path: Path) -> None:
    """Links to files are followed."""
    for name in (".git", ".venv", "__pycache__", "lib/__pycache__", "env"):
        (folder / name).mkdir()
        (folder / name / "file").touch()
    (folder / "env" / "pyvenv.cfg").touch()
    (tmp_path / "common.py").write_text("shared")
    (folder / "common.py").symlink_to(tmp_path / "common.py")
    (folder / "data").symlink_to(tmp_path)
    (folder / "gone").symlink_to(tmp_path / "gone")

    archive = pack(folder)

    assert ["common.py", "lib/__init__.py", "train.py"] == names(archive)
    with tarfile.open(archive) as content:
        assert b"shared" == content.extractfile("common.py").read()


def test_files_that_git_ignores_are_not_packed(folder: Path) -> None:
    """New files are packed; tracked files that are gone are not."""
    git(folder.parent, "init")
    (folder / ".gitignore").write_text("*.npz\n")
    (folder / "old.py").touch()
    git(folder.parent, "add", "mnist")
    (folder / "old.py").unlink()
    (folder / "new.py").touch()
    with (folder / "data.npz").open("wb") as file:
        file.truncate(100_000_000)
    (folder / "sub").mkdir()
    git(folder / "sub", "init")
    (folder / "sub" / "inner.py").touch()

    assert ["lib/__init__.py", "new.py", "sub/inner.py", "train.py"] == names(pack(folder))


@pytest.mark.parametrize("is_in_repository", [False, True])
def test_folder_outside_of_repositories_has_gitignore(folder: Path, is_in_repository: bool) -> None:
    """The advice of the error works there, too; the folder itself is not changed."""
    if is_in_repository:  # which ignores the folder
        git(folder.parent, "init")
        (folder.parent / ".gitignore").write_text("mnist\n")
    assert ["lib/__init__.py", "train.py"] == names(pack(folder))
    with (folder / "data.npz").open("wb") as file:
        file.truncate(100_000_000)
    assert "100.0 MB, more than 64.0 MB" in size_problem(folder_files(folder))

    (folder / ".gitignore").write_text("*.npz\n")

    assert "" == size_problem(folder_files(folder))
    assert ["lib/__init__.py", "train.py"] == names(pack(folder))
    assert {".gitignore", "data.npz", "lib", "train.py"} == {path.name for path in folder.iterdir()}


def test_folder_is_packed_without_git(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then .gitignore has no effect."""
    (folder / ".gitignore").write_text("train.py\n")
    monkeypatch.setattr(shutil, "which", lambda _: None)

    assert ["lib/__init__.py", "train.py"] == names(pack(folder))


KEY = "-----BEGIN RSA PRIVATE KEY-----"


@pytest.mark.parametrize("is_repository", [False, True])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".netrc", ""),
        (".aws/credentials", ""),
        ("lib/.secrets/token", ""),
        ("service-account.json", f'{{"private_key": "{KEY}"}}'),
        ("lib/id_rsa", KEY),
        ("store.p12", ""),
        ("netrc", "machine example.com login me password x"),
        ("cache/CACHEDIR.TAG", ""),
        ("state/dcos-tensorflow/history.db", ""),
        ("checkpoints/ckpt-1.index", ""),
        ("data/a.npz", ""),
        ("mnist-try-2.json", '{\n  "service": {\n    "name": "mnist"'),
    ],
)
def test_private_files_and_own_files_are_not_packed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, is_repository: bool
) -> None:
    """Each task and each reader of the archive would get them, also tracked ones."""
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    (folder / "certificate.pem").write_text("-----BEGIN CERTIFICATE-----")
    if is_repository:
        git(folder, "init")
        git(folder, "add", "--force", ".")
    settings = {"job_url": ".", "data": "data" if name.startswith("data") else "", "checkpoint_dir": "checkpoints"}

    document = load_document(options(folder, "python train.py", settings))

    archive = Path(unquote(urlsplit(document["service"]["job_url"]).path))
    assert ["certificate.pem", "lib/__init__.py", "options.json", "train.py"] == names(archive)


def test_only_imported_modules_of_a_home_are_packed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line says how many."""
    monkeypatch.setenv("HOME", str(folder))
    for name in ("letter.txt", "other.py"):
        (folder / name).touch()
    path = options(folder, "python train.py", {"job_url": "."})

    url = load_document(path)["service"]["job_url"]
    load_options(path)

    assert ["lib/__init__.py", "train.py"] == names(Path(unquote(urlsplit(url).path)))
    assert (
        "packed 2 files, 62 bytes, of ~: only imported modules, because the folder holds more than one program\n"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("path", ["/", "/tmp", "/var/tmp", "/home", "~"])
def test_folders_of_many_programs_are_shared(path: str, folder: Path) -> None:
    assert (True, False) == (is_shared_folder(Path(path).expanduser()), is_shared_folder(folder))


def test_archive_is_named_after_its_content(folder: Path, state: Path) -> None:
    """Times do not count; other users cannot read the archive."""
    first = pack(folder)
    (folder / "train.py").write_text((folder / "train.py").read_text())
    same = pack(folder)
    (folder / "train.py").chmod(0o755)
    other = pack(folder)

    assert (first, True) == (same, other != first)
    assert {first, other} == set((state / "dcos-tensorflow" / "programs").iterdir())
    assert first.name.startswith("mnist-")
    assert 0o700 == first.parent.stat().st_mode & 0o777


@pytest.mark.parametrize(("limit", "reason"), [("_MAX_FILES", "more than 1 files"), ("_MAX_FOLDER", "68 bytes, more")])
def test_only_imported_modules_of_a_large_folder_are_packed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], limit: str, reason: str
) -> None:
    """Data does not stop the program; a folder without a program is refused."""
    monkeypatch.setattr(f"tf_scheduler.cli.common.programs.{limit}", 1)
    (folder / "data.npz").write_text("binary")
    (folder.parent / "empty").mkdir()

    document = load_document(path := options(folder.parent, "python train.py", {"job_url": "mnist"}))
    load_options(path)

    archive = Path(unquote(urlsplit(document["service"]["job_url"]).path))
    assert ["lib/__init__.py", "train.py"] == names(archive)
    assert f": only imported modules, because the folder has {reason}" in capsys.readouterr().err
    assert f"but was not packed, because the folder has {reason}" in unpacked_hint(
        path, (), "FileNotFoundError: 'data.npz'"
    )
    with pytest.raises(OptionsError, match=r"service\.job_url: .*empty: contains no program"):
        load_options(options(folder.parent, "true", {"job_url": "empty"}))


def test_document_names_the_archive(folder: Path) -> None:
    """History then keeps its digest; later launches need no folder."""
    url = load_document(options(folder, "true", {"job_url": "."}))["service"]["job_url"]

    assert "train.py" in names(Path(unquote(urlsplit(url).path)))


def test_large_folder_of_data_is_not_copied(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second copy may not fit the disk; a changed small one is copied again."""
    data = folder / "data"
    data.mkdir()
    (data / "a").write_text("one")
    path = options(folder, "true", {"data": "data/"})
    (first,) = load_options(path).uris
    (data / "b").write_text("two")
    (second,) = load_options(path).uris
    monkeypatch.setattr("tf_scheduler.cli.common.options_file.MAX_COPY", 1)

    (linked,) = load_options(path).uris

    assert first.value != second.value != linked.value == data.as_uri()
    assert {"data"} == {uri.file_name for uri in (first, second, linked)}
    assert f"linked {data}, 6 bytes: too large for a read-only copy" in capsys.readouterr().err


@pytest.mark.usefixtures("real_mesos")
def test_package_beside_the_program_is_imported(run_process, tmp_path: Path, folder: Path) -> None:
    """A run with a folder; its ignored file is not in the sandbox."""
    git(folder, "init")
    (folder / ".gitignore").write_text("big\n")
    with (folder / "big").open("wb") as file:
        file.truncate(100_000_000)
    (folder / "train.py").write_text(
        "import os\nfrom lib import value\nassert not os.path.exists('big')\nprint(value)\n"
    )
    document = {"strategy": "independent", "job_url": "."}
    path = options(folder, "python train.py", document, parameter_server={"count": 0}, worker={"count": 1})

    code, out, error = run_process("local", "run", path, "--json")

    assert (0, "succeeded") == (code, json.loads(out)["state"]), error
    (log,) = tmp_path.glob("state/dcos-tensorflow/runs/*/logs/worker-0/stdout")
    assert "from the package\n" == log.read_text()
    shown = run_process("history", "show", "last")[1]
    (archive,) = tmp_path.glob("state/dcos-tensorflow/programs/*.tar")
    assert f"sha256_{archive.name}" in shown


@pytest.mark.parametrize(
    ("error", "job", "reason"),
    [
        ("No such file or directory: 'big'", ".", "git ignores it"),
        ("NotFoundError: assets/.own/x; No such file or directory", ".", ".own is hidden"),
        ("FileNotFoundError: 'big'", "train.py", "tasks get only train.py"),
        ("train.py:3: big/ does not exist", "train.py", "tasks get only train.py"),
        ("ValueError: big must be small", ".", ""),
        ("No such file or directory: 'lib'", ".", ""),
        ("No such file or directory: '/etc/hosts'", ".", ""),
        ("No such file or directory: 'none'", ".", ""),
    ],
)
def test_missing_file_beside_the_program_is_explained(folder: Path, error: str, job: str, reason: str) -> None:
    """Other errors of files have other causes."""
    (folder / ".gitignore").write_text("big\n")
    for name in ("big/a", "assets/.own/x"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).touch()

    hint = unpacked_hint(options(folder, "python train.py", {"job_url": job}), (), error)

    assert (f"in {folder}, but was not packed, because {reason}; " if reason else "") in hint
    assert bool(reason) is bool(hint)


@pytest.mark.usefixtures("real_mesos")
def test_run_says_why_a_file_is_missing(run_process, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the user sees only that a file, which is there, is not there."""
    (folder / ".gitignore").write_text("data\n")
    (folder / "data").mkdir()
    (folder / "data" / "a.csv").touch()
    monkeypatch.chdir(folder.parent)
    (folder / "train.py").write_text("open('data/a.csv')")

    code, out, _ = run_process("try", folder / "train.py", "--json")

    hint = json.loads(out)["failure"]["hint"]
    assert (1, f"data/a.csv is in {folder}, but was not packed, because git ignores it") == (
        code,
        hint.partition(";")[0],
    )
    assert '"data": ["' in hint


@pytest.mark.usefixtures("real_mesos")
def test_folder_of_data_is_linked(run_process, folder: Path) -> None:
    """At its own path, without being packed; tasks cannot change the user's data."""
    data = folder / "assets" / "train"
    data.mkdir(parents=True)
    (data / "a.csv").write_text("1,2")
    (folder / "train.py").write_text(
        "from pathlib import Path\nfile = Path('assets/train/a.csv')\nprint(file.read_text())\n"
        "try:\n    file.write_text('wrong')\nexcept OSError:\n    pass\n"
    )
    service = {"strategy": "independent", "job_url": ".", "data": ["assets/train"]}
    path = options(folder, "python train.py", service, parameter_server={"count": 0}, worker={"count": 1})

    code, out, error = run_process("local", "run", path, "--json")

    assert (0, "succeeded") == (code, json.loads(out)["state"]), error
    assert "1,2" == Path(json.loads(out)["tasks"][0]["logs"], "stdout").read_text().strip()
    assert "1,2" == (data / "a.csv").read_text()
    assert "packed 3 files" in error
