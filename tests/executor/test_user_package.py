"""Modules that a task's program imports, on the Pythons of TensorFlow 1.15 to now."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kit.interpreters import interpreters, output_of
from tf_executor import user
from tf_executor.launch import environment as around_environment

#: TensorFlow 1.15 needs 3.6 or 3.7.
PYTHONS = interpreters(6, 13)
SOURCE = Path(user.__file__).parent
MODULES = [SOURCE / f"{name}.py" for name in around_environment.USER_MODULES]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return around_environment.write_user_package(str(tmp_path))


def output_with_package(python: Path | str, library: Path, program: str, **environment: str) -> str:
    """Return the output of a program whose PYTHONPATH is only the user package."""
    variables = {"PYTHONPATH": str(library), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    return output_of([python, "-S", "-W", "error", "-c", program], library, **variables)


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.name)
def test_user_package_imports_on_every_python(library: Path, python: Path) -> None:
    """All modules work without Keras, except `keras`, which raises ImportError."""
    program = """
import tf_executor, tf_executor.fetch, tf_executor.job, tf_executor.storage, tf_executor.reporting
tf_executor.report(step=1, total=2, loss=0.5, examples=3)
print(tf_executor.devices.get_num_gpus())
print(tf_executor.job.read_context('{"a": 1}'))
try:
    import tf_executor.keras
except ImportError as error:
    print(type(error).__name__)
"""
    assert "2\n{'a': 1}\nImportError\n" == output_with_package(python, library, program, TF_EXECUTOR_GPUS="2")


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.name)
def test_report_writes_json_to_pipe(library: Path, python: Path) -> None:
    pipe = around_environment.make_pipe(library)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        output_with_package(
            python, library, "import tf_executor; tf_executor.report(step=7)", TF_EXECUTOR_PROGRESS=str(pipe)
        )
        assert 7 == json.loads(os.read(reader, 100))["step"]
    finally:
        os.close(reader)


JOB = "def main(server, log_dir, context): print(server, log_dir.rsplit('/')[-1], context)"


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.name)
def test_job_runs_and_makes_log_folder(library: Path, python: Path) -> None:
    (library / "mnist.py").write_text(JOB)
    variables = {
        "TF_CONFIG": '{"cluster": {"worker": ["h:1"]}, "task": {"type": "worker", "index": 0}}',
        "DISTRIBUTION_STRATEGY": "multi_worker_mirrored",
        "JOB_MODULE": "mnist",
        "JOB_CONTEXT": '{"rate": 0.5}',
        "LOG_DIR": str(library / "logs"),
    }
    program = "import os; from tf_executor import job; job.run(dict(os.environ))"
    assert "None logs {'rate': 0.5}\n" == output_with_package(python, library, program, **variables)
    assert (library / "logs").is_dir()


def test_public_names_work_outside_a_task(tmp_path: Path) -> None:
    """A program that reports also runs on a laptop where this project is installed."""
    program = f"""
import os; os.chdir({str(tmp_path)!r})
import tf_executor, tf_executor.devices, tf_executor.data_service, tf_executor.job
tf_executor.report(step=1)
print(tf_executor.devices.get_num_gpus(), tf_executor.logdir())
"""
    assert f"0 {tmp_path}/logs\n" == output_with_package(
        sys.executable, SOURCE.parents[1], f"import os; os.chdir({str(tmp_path)!r})" + program
    )


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_user_module_imports_only_stdlib_and_siblings(module: Path) -> None:
    """TensorFlow and fsspec are imported only inside functions or fall back."""
    for node in ast.walk(ast.parse(module.read_text(), feature_version=(3, 6))):
        if isinstance(node, ast.ImportFrom) and node.level:
            siblings = [node.module] if node.module else [alias.name for alias in node.names]
            assert set(siblings) <= set(around_environment.USER_MODULES)
            continue
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            assert name.split(".")[0] in {"tensorflow", "fsspec", *sys.stdlib_module_names}, name


def test_executor_does_not_import_tensorflow() -> None:
    for path in set(SOURCE.parent.rglob("*.py")) - set(MODULES):
        text = path.read_text()
        assert not [name for name in ("import tensorflow", "import fsspec") if name in text], path


def test_user_package_hides_executor_libraries(library: Path) -> None:
    """The executor's own dependencies could shadow the user's."""
    assert {"tf_executor"} == {path.name for path in library.iterdir()}
    names = {path.stem for path in (library / "tf_executor").iterdir()}
    assert set(around_environment.USER_MODULES) == names
    assert names == {path.stem for path in SOURCE.glob("*.py")}


@pytest.mark.parametrize("link", ["tf_executor/fetch.py", "tf_executor", "members/sitecustomize.py", "members"])
def test_link_of_the_archive_is_replaced(library: Path, link: str) -> None:
    """The agent extracts archives before the executor, which may be root, starts."""
    other = library.parent / "other"
    (other / "folder").mkdir(parents=True)
    (other / "file").touch()
    (library / "members").mkdir()
    if (library / link).exists():
        (library / link).rename(other / "moved")
    (library / link).symlink_to(other / ("file" if link.endswith(".py") else "folder"))
    around_environment.make_hook(around_environment.write_user_package(str(library.parent)))
    assert (b"", []) == ((other / "file").read_bytes(), list((other / "folder").iterdir()))
    assert not (library / link).is_symlink()


def test_user_package_is_written_twice(library: Path) -> None:
    """A restarted executor may find its sandbox in use."""
    assert library == around_environment.write_user_package(str(library.parent))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give up a capability")
def test_stacks_say_why_they_cannot_be_read() -> None:
    """As in a container without the capability SYS_PTRACE."""
    sleeper = [sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(600)"]
    without = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]
    with subprocess.Popen(sleeper, stdout=subprocess.PIPE, start_new_session=True) as program:
        try:
            assert program.stdout is not None
            assert b"ready\n" == program.stdout.readline()
            command = [*without, sys.executable, "-m", "tf_executor.user.stacks"]
            done = subprocess.run(command, capture_output=True, text=True, start_new_session=True, check=False)
        finally:
            program.kill()

    why = "this user may not read its memory (ptrace): in a container, it needs the capability SYS_PTRACE\n"
    assert (1, "", f"process {program.pid}: {why}") == (done.returncode, done.stdout, done.stderr)
