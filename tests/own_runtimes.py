"""Runtimes (virtual environments) that tests create once per user and then reuse.

What takes minutes to make is made only with TEST_RUNTIMES=make in the environment, as continuous integration has it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib import metadata
from pathlib import Path

import pytest

from kit.commands import run_program

MAKE = "TEST_RUNTIMES"
_OWN_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def need(name: str, *content: str, slow: bool = True, environment: Mapping[str, str] | None = None) -> None:
    """Ensure that a runtime made of `content` exists; otherwise skip the test."""
    if name in {one["name"] for one in json.loads(_runtime({}, "list", "--json").stdout)}:
        return
    if slow and os.environ.get(MAKE) != "make":
        pytest.skip(f"no runtime {name}: {MAKE}=make makes it, which takes some minutes")
    made = _runtime(environment or {}, "create", name, *content)
    if made.returncode:
        pytest.skip(f"no runtime {name}, and none can be made: {made.stderr}")


def python_of(name: str) -> str:
    """Return the interpreter of a runtime that exists."""
    runtimes = json.loads(_runtime({}, "list", "--json").stdout)
    return next(str(one["python"]) for one in runtimes if one["name"] == name)


def need_torch() -> None:
    """Ensure the runtime of examples/pytorch_ddp: 0.2 GB, made at once.

    Only the index of PyTorch itself, and those that mirror it, have a build without CUDA: pip asks one of these where
    its settings say so (PIP_EXTRA_INDEX_URL). A version with `+cpu` can be no other build: the usual one brings
    gigabytes of CUDA along.
    """
    need("torch", "--package", "torch==2.13.0+cpu", "--package", "numpy", slow=False)


def need_tensorflow_1() -> None:
    """Ensure a runtime with TensorFlow 1.15, whose last Python is 3.7."""
    need("test-1.15", "--tensorflow", "1.15", "--python", "3.7")


def need_horovod() -> None:
    """Ensure the runtime of examples/horovod: building takes minutes and 1 GB."""
    missing = [program for program in ("cmake", "make", "g++") if shutil.which(program) is None]
    if missing:
        pytest.skip(f"to build Horovod {', '.join(missing)} is missing")
    packages = ("scikit-learn", "setuptools<70", "wheel", "packaging")
    content = ("--tensorflow", "2.13", *(word for name in packages for word in ("--package", name)))
    # Two compilers at once.
    settings = {"MAKEFLAGS": "-j2", "HOROVOD_WITH_TENSORFLOW": "1", "HOROVOD_WITHOUT_MPI": "1"}
    need("horovod", *content, "--build", "horovod==0.28.1", environment=settings)


def link_python(folder: Path, without: str = "", first: Path | None = None) -> Path:
    """Make an environment with the packages of this one; return its bin folder.

    `without` a package; `first`: packages of another environment, which replace these.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next((folder / "lib").glob("python*/site-packages"))
    others = list(first.iterdir()) if first else []
    known = {_package(path) for path in others} | ({without, "keras", "tf_keras"} if first else {without})
    for path in [*others, *Path(sysconfig.get_path("purelib")).iterdir()]:
        if path in others or _package(path) not in known:
            (packages / path.name).symlink_to(path)
    program = folder / "bin" / "dcos-tensorflow"
    program.write_text(f"#!{folder}/bin/python\nfrom tf_scheduler.cli.start import main\nmain()\n")
    program.chmod(0o755)
    return program.parent


def python_with_tensorflow(version: str) -> str:
    """Return an interpreter with TensorFlow `version`, the running one if possible."""
    if metadata.version("tensorflow-cpu").startswith(f"{version}."):
        return sys.executable
    # TensorFlow 2.12 accepts any JAX, and pip would try all newer ones: gigabytes.
    packages = ("--package", "jax<0.4.24", "--package", "jaxlib<0.4.24") if version == "2.12" else ()
    need(f"test-{version}", "--tensorflow", version, "--python", _OWN_VERSION, *packages)
    return python_of(f"test-{version}")


def tensorflow_2_15(folder: Path) -> Path:
    """Make an environment with TensorFlow 2.15; return its bin folder."""
    root = Path(python_with_tensorflow("2.15")).parents[1]
    packages = root / "lib" / f"python{_OWN_VERSION}" / "site-packages"
    if not packages.exists():
        pytest.skip(f"the runtime test-2.15 is not of Python {_OWN_VERSION}")
    return link_python(folder, first=packages)


def make_all() -> None:
    """Make the runtimes of all tests, so that no test's time limit includes a build."""
    makers: Mapping[str, Callable[[], object]] = {
        "torch": need_torch,
        "test-1.15": need_tensorflow_1,
        **{f"test-{version}": partial(python_with_tensorflow, version) for version in ("2.12", "2.15", "2.20")},
        "horovod": need_horovod,
    }
    for name, make in makers.items():
        started = time.monotonic()
        try:
            make()
        except pytest.skip.Exception as problem:
            print(str(problem).strip().rpartition("\n")[2], flush=True)
        print(f"runtime {name}: {time.monotonic() - started:.0f} s", flush=True)


def _package(path: Path) -> str:
    """Return the name of the package to which an entry of site-packages belongs."""
    return path.name.partition("-")[0].lower()


def _runtime(environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a runtime command at low priority."""
    command = ["nice", "-n", "15", sys.executable, "-m", "tf_scheduler", "runtime", *arguments]
    return run_program(*command, env={**os.environ, **environment})


if __name__ == "__main__":
    make_all()
