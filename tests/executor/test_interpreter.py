from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kit.commands import run_program
from tf_executor.launch.environment import InterpreterError, find_interpreter


def fake_python(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / name
    script.write_text(f"#!/bin/sh\necho {name} in {folder.name}\n")
    script.chmod(0o755)
    return script


def say_python(folders: tuple[str, ...], name: str = "python") -> str:
    environment = {"PATH": os.pathsep.join((*folders, os.environ["PATH"]))}
    run = run_program("/bin/sh", "-c", name, env=environment, check=True)
    return run.stdout.strip()


def test_default_interpreter_is_executors_own(tmp_path: Path) -> None:
    assert sys.executable == find_interpreter("", "/bin", str(tmp_path)).executable


def test_interpreter_name_is_resolved(tmp_path: Path) -> None:
    script = fake_python(tmp_path / "bin", "python3.9")
    assert str(script) == find_interpreter("python3.9", str(script.parent), str(tmp_path)).executable


@pytest.mark.parametrize("name", ["python", "python3"])
def test_python_command_starts_requested_version(tmp_path: Path, name: str) -> None:
    script = fake_python(tmp_path / "bin with blank", "python3.9")
    fake_python(script.parent, "python")
    interpreter = find_interpreter(str(script), "/bin", str(tmp_path))
    assert "python3.9 in bin with blank" == say_python(interpreter.folders, name)


def test_complete_folder_needs_no_scripts(tmp_path: Path) -> None:
    script = fake_python(tmp_path / "venv" / "bin", "python")
    (script.parent / "python3").symlink_to(script)
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    sandbox = tmp_path / "sandbox"
    sandbox.mkdir()
    interpreter = find_interpreter(str(script), "/bin", str(sandbox))
    assert ((str(script.parent),), str(tmp_path / "venv")) == (interpreter.folders, interpreter.virtual_env)
    assert [] == list(sandbox.iterdir())


@pytest.mark.parametrize("name", ["/nowhere/python", "python9.9"])
def test_missing_interpreter_is_reported(tmp_path: Path, name: str) -> None:
    with pytest.raises(InterpreterError, match=f"option python: `{name}`: not an executable file on this agent"):
        find_interpreter(name, "/bin", str(tmp_path))
