from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tf_executor.interpreter import InterpreterError, find_interpreter


def fake_python(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / name
    script.write_text(f"#!/bin/sh\necho {name} in {folder.name}\n")
    script.chmod(0o755)
    return script


def say_python(folders: tuple[str, ...], name: str = "python") -> str:
    environment = {"PATH": os.pathsep.join((*folders, os.environ["PATH"]))}
    run = subprocess.run(["/bin/sh", "-c", name], env=environment, capture_output=True, text=True, check=True)
    return run.stdout.strip()


def test_no_wish_means_the_executors_own(tmp_path: Path) -> None:
    """Empty: the interpreter that runs this."""
    assert sys.executable == find_interpreter("", "/bin", str(tmp_path)).executable


def test_a_name_is_looked_up(tmp_path: Path) -> None:
    """A bare name is sought in the agent's PATH."""
    script = fake_python(tmp_path / "bin", "python3.9")
    assert str(script) == find_interpreter("python3.9", str(script.parent), str(tmp_path)).executable


@pytest.mark.parametrize("name", ["python", "python3"])
def test_python_means_the_chosen_one_where_its_folder_has_another(tmp_path: Path, name: str) -> None:
    """`python train.py` runs under python3.9 although `python` beside it is something else."""
    script = fake_python(tmp_path / "bin with blank", "python3.9")
    fake_python(script.parent, "python")
    found = find_interpreter(str(script), "/bin", str(tmp_path))
    assert "python3.9 in bin with blank" == say_python(found.folders, name)


def test_a_complete_folder_is_used_as_it_is(tmp_path: Path) -> None:
    """A virtual environment has both names: nothing is written to the sandbox, and it is recognised."""
    script = fake_python(tmp_path / "venv" / "bin", "python")
    (script.parent / "python3").symlink_to(script)
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    sandbox = tmp_path / "sandbox"
    sandbox.mkdir()
    found = find_interpreter(str(script), "/bin", str(sandbox))
    assert ((str(script.parent),), str(tmp_path / "venv")) == (found.folders, found.virtual_env)
    assert [] == list(sandbox.iterdir())


@pytest.mark.parametrize("name", ["/nowhere/python", "python9.9"])
def test_a_missing_interpreter_is_named(tmp_path: Path, name: str) -> None:
    """The task fails with a sentence that a user can act on."""
    with pytest.raises(InterpreterError, match=f"Python '{name}' is no executable file on this agent"):
        find_interpreter(name, "/bin", str(tmp_path))
