"""Images, without a Docker engine."""

from __future__ import annotations

import io
import json
import shutil
import sys
import tarfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from containers.conftest import AGENTS, PLAIN, Containers, bare_python, job
from mesos_local.images import Image, Layer

OLDEST, NEWEST = 8, 13


def interpreter(minor: int) -> Path:
    """Return an interpreter of this machine outside of virtual environments."""
    known = Path(sys.base_prefix).parent.glob(f"3.{minor}.*/bin/python3.{minor}")  # pyenv
    found = next(known, None) or shutil.which(f"python3.{minor}", path="/usr/local/bin:/usr/bin")
    if found is None:
        pytest.skip(f"this machine has no Python 3.{minor}")
    return Path(found)


@pytest.mark.parametrize("minor", range(OLDEST, NEWEST + 1, 2))
def test_executor_runs_with_the_python_of_an_image(containers: Containers, tmp_path: Path, minor: int) -> None:
    """Each job runs in two versions."""
    versions = {"worker": minor, "chief": minor + 1}
    options = job(f"with-{minor}", "python -V")
    for section, version in versions.items():
        (tmp_path / section).mkdir()
        containers.build(f"python3{version}", bare_python(interpreter(version), tmp_path / section))
        options[section] = {**options["worker"], "image": f"python3{version}"}

    report = containers.run(options)

    assert "succeeded" == report["state"], report
    for section, version in versions.items():
        assert containers.output(report, f"{section}-0").startswith(f"Python 3.{version}.")


def oci_archive(path: Path, layers: list[Path], config: Mapping[str, Any], architecture: str = "amd64") -> None:
    """Write an OCI archive (image-spec, image layout)."""
    with tarfile.open(path, "w") as archive:

        def add(name: str, content: bytes) -> None:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))

        def blob(content: bytes) -> dict[str, str]:
            digest = sha256(content).hexdigest()
            add(f"blobs/sha256/{digest}", content)
            return {"digest": f"sha256:{digest}"}

        listed = [blob(layer.read_bytes()) for layer in layers]
        content = {"architecture": architecture, "os": "linux", "config": config}
        manifest = {"config": blob(json.dumps(content).encode()), "layers": listed}
        add("index.json", json.dumps({"manifests": [blob(json.dumps(manifest).encode())]}).encode())


def plain_layer(containers: Containers, folder: Path) -> Path:
    """Return the only layer of the plain image."""
    with tarfile.open(containers.folder / "data/dcos-tensorflow/images" / f"{PLAIN}.tar") as archive:
        (name,) = (name for name in archive.getnames() if name.endswith("/layer.tar"))
        archive.extract(name, folder, filter="data")
    return folder / name


def build_layered(containers: Containers, folder: Path, name: str) -> None:
    """Build an image from an archive with two layers."""
    added = folder / "added.tar"
    with tarfile.open(added, "w") as archive:
        archive.add(__file__, "opt/added.py")
    config = {"Env": ["COLOUR=blue", f"PATH={sys.base_prefix}/bin:/usr/bin:/bin"], "WorkingDir": "/opt/made"}
    config |= {"Entrypoint": ["/bin/false"], "Cmd": ["/bin/false"], "User": "nobody"}
    oci_archive(folder / "image.tar", [plain_layer(containers, folder), added], config)
    built = containers.command("local", "image", "build", name, "--from", folder / "image.tar")
    assert built.stdout.startswith(f"{name} is built: "), built.stderr


def test_image_of_an_archive_has_its_variables_and_layers(containers: Containers, tmp_path: Path) -> None:
    """Mesos ignores user and entry point for a command of the shell."""
    name = "registry.example.com:5000/team/layered:2"
    build_layered(containers, tmp_path, name)

    report = containers.run(job("layered", 'echo "$COLOUR"; ls /opt; pwd; id -un', {"image": name}))

    assert "succeeded" == report["state"], report
    assert "blue\nadded.py\nmade\n/mnt/mesos/sandbox\nroot\n" == containers.output(report)


def test_jobs_have_different_images(containers: Containers, tmp_path: Path) -> None:
    build_layered(containers, tmp_path, "marked")
    options = job("two", "ls /opt 2>/dev/null; true", {"image": PLAIN})
    options["chief"] = {**options["worker"], "image": "marked"}

    report = containers.run(options)

    assert "succeeded" == report["state"], report
    assert "added.py\nmade\n" == containers.output(report, "chief-0")
    assert "" == containers.output(report)


@pytest.mark.parametrize(
    ("lacks", "reason", "last"),
    [
        ("python", "executor.python: `python3`: cannot be started in the image `without-python`", "python3: not found"),
        (
            "sh",
            "the executor did not start in the image `without-sh`; hint: stderr of the task",
            "Failed to execute 'sh'",
        ),
    ],
)
def test_image_that_cannot_run_executor_fails_job_early(
    containers: Containers, tmp_path: Path, lacks: str, reason: str, last: str
) -> None:
    """At most once on each agent: the image is the same on all."""
    image, root = f"without-{lacks}", tmp_path / "root"
    with tarfile.open(plain_layer(containers, tmp_path)) as archive:
        archive.extractall(root, filter="fully_trusted")
    for folder in (root / sys.base_prefix[1:] / "bin", root / "usr/bin", root / "bin"):
        for path in (path for pattern in (f"{lacks}", f"{lacks}3*") for path in folder.glob(pattern)):
            path.unlink(missing_ok=True)
    # `local image build` reads a folder only with a shell.
    with tarfile.open(tmp_path / "layer.tar", "w") as archive:
        archive.add(root, ".")
    containers.build(image, Image([Layer.of(tmp_path / "layer.tar")]))

    report = containers.run(job(image, "true", {"image": image}))

    assert ("failed", True) == (report["state"], len(report["restarts"]) < AGENTS), report
    assert reason in report["reason"]
    assert any(last in line for task in report["tasks"] for line in task["last_lines"])


@pytest.mark.parametrize("image", ["tensorflw", "tensorflow/tensorflow:2.15.0", "nvcr.io:443/nvidia/tensorflow:25.02"])
def test_unknown_image_is_refused_before_launch(containers: Containers, image: str) -> None:
    """Also one of a registry, with the commands that make it known."""
    path = containers.folder / "unknown.json"
    path.write_text(json.dumps(job("unknown", "true", {"image": image})))

    done = containers.command("local", "run", path)

    assert (1, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith(f"worker.image: `{image}`: unknown image; valid names: ")
    save = f"docker save {image} -o image.tar, then dcos-tensorflow local image build {image} --from image.tar\n"
    assert done.stderr.endswith(f"; agents of a local cluster pull from no registry: {save}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no archive", "neither an archive of `docker save` nor an OCI archive"),
        (b"", "neither an archive of `docker save` nor an OCI archive"),
    ],
)
def test_broken_archive_is_refused(containers: Containers, tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "broken.tar").write_bytes(content)

    done = containers.command("local", "image", "build", "broken", "--from", tmp_path / "broken.tar")

    assert (1, "") == (done.returncode, done.stdout)
    assert message in done.stderr
    assert "broken" not in containers.command("local", "image", "list").stdout


def test_damaged_image_fails_the_job_at_once(containers: Containers) -> None:
    """After one launch on each agent."""
    image = containers.folder / "data/dcos-tensorflow/images/damaged.tar"
    image.write_bytes(image.with_name(f"{PLAIN}.tar").read_bytes()[: 1 << 20])

    report = containers.run(job("damaged", "true", {"image": "damaged"}))

    assert "failed" == report["state"]
    assert f"damaged image {image}: Unexpected EOF in archive" in report["reason"]
    assert "each launch would fail in this way (restart.fail_fast)" in report["reason"]


def test_image_of_another_architecture_is_refused(containers: Containers, tmp_path: Path) -> None:
    oci_archive(tmp_path / "arm.tar", [], {}, "arm64")

    done = containers.command("local", "image", "build", "arm", "--from", tmp_path / "arm.tar")

    assert (1, "image `arm` is for arm64; this machine is amd64\n") == (done.returncode, done.stderr)
