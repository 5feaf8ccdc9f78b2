"""Image archives, read and written without agents."""

from __future__ import annotations

import gzip
import io
import json
import resource
import tarfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kit.commands import ENVIRONMENT, run_command
from mesos_local.host import MesosLocalError
from mesos_local.images import (
    Image,
    Layer,
    forget_old_images,
    image_folder,
    image_names,
    image_path,
    read_archive,
    read_folder,
    remove_image,
    scratch_folder,
    write_image,
)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def layers(folder: Path, *texts: str) -> list[Layer]:
    for number, text in enumerate(texts):
        archive_of(folder / f"{number}.tar", {text: text})
    return [Layer.of(folder / f"{number}.tar") for number in range(len(texts))]


def content(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {member.name: (archive.extractfile(member) or io.BytesIO()).read() for member in archive}


@pytest.mark.parametrize(
    ("name", "repository", "tag"),
    [
        ("two", "two", "latest"),
        ("team/two:3", "team/two", "3"),
        ("my__two--2", "my__two--2", "latest"),
        ("registry.example.com:5000/team/two:3", "registry.example.com:5000/team/two", "3"),
        ("localhost:5000/two", "localhost:5000/two", "latest"),
    ],
)
def test_archive_has_the_format_of_the_local_puller(tmp_path: Path, name: str, repository: str, tag: str) -> None:
    """Each layer names the one below, and both have the configuration."""
    image = Image(layers(tmp_path, "below", "top"), {"Env": ["A=1"]})

    files = content(write_image(name, image))

    assert [name] == image_names()
    ((actual, tags),) = json.loads(files["repositories"]).items()
    assert (repository, [tag]) == (actual, list(tags))
    top = json.loads(files[f"{tags[tag]}/json"])
    expected = [layer.path.read_bytes() for layer in reversed(image.layers)]
    assert expected == [files[f"{top['id']}/layer.tar"], files[f"{top['parent']}/layer.tar"]]
    assert {"Env": ["A=1"]} == top["config"]
    assert b"1.0" == files[f"{top['parent']}/VERSION"]


@pytest.mark.parametrize("name", ["", "Upper", "../up", "/root", "a:b:c", "a b", "a//b", "-a", "..:1/a", "a:1/../b"])
def test_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(MesosLocalError, match="must be NAME, FOLDER/NAME or NAME:TAG"):
        image_path(name)


def test_file_with_another_name_is_not_an_image(tmp_path: Path) -> None:
    """It must not stop the start of agents; `local image list` reports it."""
    path = write_image("one", Image(layers(tmp_path, "text")))
    path.with_name("Zero.tar").touch()
    path.with_name(KILLED).mkdir()
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "storedImages").touch()

    forget_old_images(tmp_path / "store")

    listed = run_command("local", "image", "list", env=ENVIRONMENT | {"XDG_DATA_HOME": str(tmp_path / "data")})
    assert "one\n" == listed.stdout
    assert not path.with_name(KILLED).exists()
    assert f"notice: {path.with_name('Zero.tar')} is ignored: its name is not that of an image\n" == listed.stderr


#: Temporary folder of a process that started at another time.
KILLED = ".1-999999999-abc"


def test_folder_of_a_killed_build_is_removed() -> None:
    """By the next build; that of a running one stays."""
    with scratch_folder() as own:
        (own.with_name(KILLED) / "content").mkdir(parents=True)
        with scratch_folder() as other:
            assert sorted([own, other]) == sorted(image_folder().iterdir())

    assert [] == list(image_folder().iterdir())


def test_removed_image_leaves_no_empty_folder(tmp_path: Path) -> None:
    image = Image(layers(tmp_path, "text"))
    for name in ("team/one", "team/deep/two"):
        write_image(name, image)

    remove_image("team/deep/two")
    assert ["team"] == [path.name for path in image_folder().iterdir()]
    assert ["one.tar"] == [path.name for path in (image_folder() / "team").iterdir()]

    remove_image("team/one")
    assert [] == list(image_folder().iterdir())


def archive_of(path: Path, files: Mapping[str, str | bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, text in files.items():
            member, content = tarfile.TarInfo(name), text.encode() if isinstance(text, str) else text
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def saved_archive(path: Path, *layers: bytes) -> Path:
    """Write an archive of `docker save`."""
    names = [f"{number}/layer.tar" for number in range(len(layers))]
    config = {"architecture": "amd64", "config": {"Env": ["A=1"]}}
    manifest = [{"Config": "c.json", "Layers": names}]
    files = {"manifest.json": json.dumps(manifest), "c.json": json.dumps(config)}
    return archive_of(path, {**files, **dict(zip(names, layers, strict=True))})


def test_archive_of_docker_save_is_read(tmp_path: Path) -> None:
    expected = [layer.path.read_bytes() for layer in layers(tmp_path, "below", "top")]

    image = read_archive(saved_archive(tmp_path / "saved.tar", *expected), tmp_path / "scratch")

    assert (expected, {"Env": ["A=1"]}, "amd64") == (
        [layer.path.read_bytes() for layer in image.layers],
        image.config,
        image.architecture,
    )


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"manifest.json": "[]"},
        {"manifest.json": '[{"Config": "../../etc/passwd", "Layers": []}]'},
        {"manifest.json": '[{"Config": "missing.json", "Layers": []}]'},
        {"index.json": '{"manifests": []}'},
        {"index.json": "not JSON"},
    ],
)
def test_archive_without_an_image_is_refused(tmp_path: Path, files: dict[str, str]) -> None:
    with pytest.raises(MesosLocalError, match="neither an archive of `docker save` nor an OCI archive"):
        read_archive(archive_of(tmp_path / "bad.tar", files), tmp_path / "scratch")


@pytest.mark.parametrize("text", [b"", b"text", gzip.compress(bytes(1000))[:-20]], ids=["empty", "text", "cut"])
def test_file_that_is_not_an_archive_is_refused(tmp_path: Path, text: bytes) -> None:
    """In one line, which names the file."""
    path = tmp_path / "bad.tar"
    path.write_bytes(text)

    with pytest.raises(MesosLocalError) as caught:
        read_archive(path, tmp_path / "scratch")

    expected = f"{path}: neither an archive of `docker save` nor an OCI archive, or damaged"
    assert expected == str(caught.value)


def test_archive_writes_nothing_outside(tmp_path: Path) -> None:
    """Long links mislead the filter of older Python (CVE-2025-4517)."""
    outside, path, links = tmp_path / "outside", "", list[str]()
    outside.write_text("of another program")
    with tarfile.open(tmp_path / "evil.tar", "w") as archive:

        def add(name: str, kind: bytes, target: str = "", content: bytes = b"") -> None:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, target, len(content)
            archive.addfile(member, io.BytesIO(content))

        for name in "abcdefghijklmnop":
            add(f"{path}{'d' * 247}", tarfile.DIRTYPE)
            add(f"{path}{name}", tarfile.SYMTYPE, "d" * 247)
            path, links = f"{path}{'d' * 247}/", [*links, name]
        long = "/".join([*links, "l" * 254])
        add(long, tarfile.SYMTYPE, "../" * len(links))
        add("escape", tarfile.SYMTYPE, f"{long}/{'../' * 4}outside")  # from the temporary folder of the build
        add("file", tarfile.LNKTYPE, "escape")
        add("file", tarfile.REGTYPE, content=b"of the archive")
    error = build(tmp_path, tmp_path / "evil.tar")
    assert "of another program" == outside.read_text()
    assert f"{tmp_path / 'evil.tar'}: extraction refused: " in error


def test_archive_is_limited_in_size(tmp_path: Path) -> None:
    member = tarfile.TarInfo("layer.tar")
    member.size = 1 << 50
    (tmp_path / "large.tar").write_bytes(member.tobuf() + bytes(1 << 20))
    assert "extraction refused: needs more than the " in build(tmp_path, tmp_path / "large.tar")


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_incomplete_layer_is_refused(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    """Its archive is complete, but each launch would fail."""
    layer = compress(layers(tmp_path, "text" * 1000)[0].path.read_bytes())
    path = saved_archive(tmp_path / "saved.tar", layer[: len(layer) // 2])

    with pytest.raises(MesosLocalError, match=rf"{path}: layer [0-9a-f]+ is damaged: .*[Uu]nexpected"):
        read_archive(path, tmp_path / "scratch")


def build(folder: Path, source: Path, **settings: Any) -> str:
    """Run `local image build one` without success; return its error output."""
    environment = ENVIRONMENT | {"XDG_DATA_HOME": str(folder / "data")}
    done = run_command("local", "image", "build", "one", "--from", source, env=environment, **settings)
    assert (1, "") == (done.returncode, done.stdout)
    return str(done.stderr)


def test_unknown_source_is_named_with_its_kinds(tmp_path: Path) -> None:
    source = tmp_path / "missing"
    expected = f"--from {source}: neither a folder nor an archive; unknown runtime `{source}`; valid names: "
    assert build(tmp_path, source).startswith(expected)


def test_folder_without_shell_is_refused(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    assert f"{tmp_path / 'root'}: bin/sh is missing; an image needs `sh`\n" == build(tmp_path, tmp_path / "root")


def test_full_disk_is_named_with_the_folder_of_images(tmp_path: Path) -> None:
    """A limit for the size of files stands for the disk."""
    source = saved_archive(tmp_path / "saved.tar", bytes(3 << 20))
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (2 << 20, 2 << 20))
    expected = f"folder {tmp_path / 'data/dcos-tensorflow/images'} cannot be used: File too large\n"
    assert expected == build(tmp_path, source, preexec_fn=limit)


def test_damaged_blob_is_refused(tmp_path: Path) -> None:
    digest = "0" * 64
    index = json.dumps({"manifests": [{"digest": f"sha256:{digest}"}]})
    path = archive_of(tmp_path / "bad.tar", {"index.json": index, f"blobs/sha256/{digest}": "{}"})

    with pytest.raises(MesosLocalError, match=f"sha256:{digest}: damaged"):
        read_archive(path, tmp_path / "scratch")


def test_layers_are_forgotten_after_an_image_has_changed(tmp_path: Path) -> None:
    """An agent takes an image that it has unpacked from `storedImages`."""
    write_image("one", Image(layers(tmp_path, "text")))
    store = tmp_path / "store"
    store.mkdir()
    (store / "storedImages").touch()
    forget_old_images(store)
    assert store.exists()

    (tmp_path / "root/bin").mkdir(parents=True)
    (tmp_path / "root/bin/sh").symlink_to("/missing")
    path = write_image("one", read_folder(tmp_path / "root", tmp_path))
    path.touch()
    forget_old_images(store)

    assert not store.exists()
