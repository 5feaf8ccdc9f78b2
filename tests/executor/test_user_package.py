"""What the user's program gets from us, on the oldest Python that TensorFlow 1.15 can have, too."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tf_executor import user_package

#: TensorFlow 1.15 is for Python 3.6 and 3.7.
OLDEST, NEWEST = 6, 13
MODULES = [Path(user_package.__file__).with_name(f"{name}.py") for name in user_package.MODULES]


def interpreters() -> list[Path]:
    """Every Python on this machine that a program of a user may have."""
    folders = [*Path.home().glob(".pyenv/versions/3.*/bin"), *map(Path, os.get_exec_path())]
    found: dict[int, Path] = {}
    for minor in range(OLDEST, NEWEST + 1):
        for path in (folder / f"python3.{minor}" for folder in folders):
            if path.is_file() and subprocess.run([path, "-V"], capture_output=True, check=False).returncode == 0:
                found.setdefault(minor, path)
    return list(found.values())


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return user_package.write(str(tmp_path))


def run(python: Path | str, library: Path, program: str, **environment: str) -> str:
    """Standard output of a program that finds our part and nothing else of ours."""
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(library), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    command = [str(python), "-S", "-W", "error", "-c", program]
    result = subprocess.run(command, env=variables, cwd=library, capture_output=True, text=True, check=False)
    assert (0, "") == (result.returncode, result.stderr)
    return result.stdout


@pytest.mark.parametrize("python", interpreters(), ids=lambda path: path.name)
def test_every_python_of_tensorflow_can_import_it(library: Path, python: Path) -> None:
    """And use what needs no Keras; Keras' absence is told."""
    program = """
import tf_executor, tf_executor.fetch, tf_executor.job, tf_executor.gpu_check, tf_executor.reporting
tf_executor.report(step=1, total=2, loss=0.5, examples=3)
print(tf_executor.devices.get_num_gpus())
print(tf_executor.job.read_context('{"a": 1}'))
try:
    import tf_executor.keras
except ImportError as error:
    print(error)
"""
    expected = "2\n{'a': 1}\nProgressCallback needs Keras: neither tf_keras, tensorflow nor keras can be imported\n"
    assert expected == run(python, library, program, TF_EXECUTOR_GPUS="2")


@pytest.mark.parametrize("python", interpreters(), ids=lambda path: path.name)
def test_every_python_can_report(library: Path, python: Path) -> None:
    """The pipe gets a line of JSON."""
    pipe = user_package.make_pipe(library)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        run(python, library, "import tf_executor; tf_executor.report(step=7)", TF_EXECUTOR_PROGRESS=str(pipe))
        assert b'{"step": 7}\n' == os.read(reader, 100)
    finally:
        os.close(reader)


JOB = "def main(server, log_dir, context): print(server, log_dir.rsplit('/')[-1], context)"


@pytest.mark.parametrize("python", interpreters(), ids=lambda path: path.name)
def test_every_python_can_run_a_job(library: Path, python: Path) -> None:
    """And makes its log folder."""
    (library / "mnist.py").write_text(JOB)
    variables = {
        "TF_CONFIG": '{"cluster": {"worker": ["h:1"]}, "task": {"type": "worker", "index": 0}}',
        "DISTRIBUTION_STRATEGY": "multi_worker_mirrored",
        "JOB_MODULE": "mnist",
        "JOB_CONTEXT": '{"rate": 0.5}',
        "LOG_DIR": str(library / "logs"),
    }
    program = "import os; from tf_executor import job; job.run(dict(os.environ))"
    assert "None logs {'rate': 0.5}\n" == run(python, library, program, **variables)
    assert (library / "logs").is_dir()


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_it_needs_nothing_else_of_ours(module: Path) -> None:
    """Its imports are its own modules, the standard library, and what the program itself may have."""
    allowed = {f"tf_executor.{name}" for name in user_package.MODULES} | {"tf_executor"}
    theirs = {"tensorflow", "fsspec"}
    for node in ast.walk(ast.parse(module.read_text(), feature_version=(3, 6))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = (
                [str(node.module)] if node.module != "tf_executor" else [f"tf_executor.{a.name}" for a in node.names]
            )
        for name in names:
            top = name.split(".")[0]
            assert name in allowed or top in theirs or (top != "tf_executor" and top in sys.stdlib_module_names), name


def test_only_this_part_imports_what_the_user_may_have() -> None:
    """The executor itself must run without."""
    others = {path for path in Path(user_package.__file__).parent.glob("*.py") if path not in MODULES}
    for path in others:
        text = path.read_text()
        assert not [name for name in ("import tensorflow", "import fsspec") if name in text], path


def test_the_executors_own_libraries_stay_out_of_the_users_sight(library: Path) -> None:
    """They could hide the user's."""
    assert {"sitecustomize.py", "tf_executor"} == {path.name for path in library.iterdir()}
    names = {path.stem for path in (library / "tf_executor").iterdir()}
    assert set(user_package.MODULES) == names


def test_writing_it_twice_changes_nothing(library: Path) -> None:
    """An executor may find its sandbox in use."""
    assert library == user_package.write(str(library.parent))
