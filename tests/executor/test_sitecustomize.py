"""Large libraries are imported without garbage collection, and all else is as without us."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tf_executor import user_package
from tf_executor.sitecustomize import SWITCH

from .test_user_package import interpreters

#: Stands for TensorFlow: what it tells is told at its import.
LARGE = "import gc; collecting = gc.isenabled(); rubbish = []; rubbish.append(rubbish)"
LOOK = """
import gc, json, sys
{before}
import {name} as large
frozen = gc.get_freeze_count() if hasattr(gc, "get_freeze_count") else None
print(json.dumps([large.collecting, gc.isenabled(), frozen]))
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return user_package.write(str(tmp_path))


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    folder = tmp_path / "modules"
    folder.mkdir()
    for name in ("tensorflow", "small"):
        (folder / f"{name}.py").write_text(LARGE)
    return folder


def run(program: str, *folders: Path, python: Path | str = sys.executable, **environment: str) -> str:
    """Standard output, with site, as users' programs start."""
    path = os.pathsep.join(map(str, folders))
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    result = subprocess.run(
        [str(python), "-W", "error", "-c", program], env=variables, capture_output=True, text=True, check=False
    )
    assert (0, "") == (result.returncode, result.stderr)
    return result.stdout


def look(*folders: Path, name: str = "tensorflow", before: str = "", **how: Any) -> list[Any]:
    """Whether garbage was collected during the import, and is afterwards; how many objects are frozen."""
    found: list[Any] = json.loads(run(LOOK.format(name=name, before=before), *folders, **how))
    return found


@pytest.mark.parametrize("python", interpreters(), ids=lambda path: path.name)
def test_a_large_library_is_imported_without_garbage_collection(library: Path, modules: Path, python: Path) -> None:
    collecting, after, frozen = look(library, modules, python=python)

    assert not collecting
    assert after
    assert frozen is None or frozen > 1000


def test_it_is_as_without_us_where_the_environment_says_so(library: Path, modules: Path) -> None:
    assert [True, True, 0] == look(library, modules, **{SWITCH: "0"})


def test_small_libraries_are_let_alone(library: Path, modules: Path) -> None:
    assert [True, True, 0] == look(library, modules, name="small")


def test_a_program_that_collects_no_garbage_goes_on_like_that(library: Path, modules: Path) -> None:
    assert [False, False, 0] == look(library, modules, before="gc.disable()")


def test_garbage_is_collected_again_after_an_import_that_fails(library: Path, modules: Path) -> None:
    (modules / "tensorflow.py").write_text("raise ImportError('no AVX')")
    program = """
import gc
try:
    import tensorflow
except ImportError as error:
    print(error, gc.isenabled())
"""
    assert "no AVX True\n" == run(program, library, modules)


def test_a_second_import_of_one_that_failed_is_quick_too(library: Path, modules: Path) -> None:
    (modules / "tensorflow.py").write_text(f"import sys\nsys.tries.append(1)\n{LARGE}\nassert len(sys.tries) > 1")
    before = "sys.tries = []\ntry:\n    import tensorflow\nexcept AssertionError:\n    pass"

    assert [False, True] == look(library, modules, before=before)[:2]


def test_a_library_that_imports_another_is_quick_to_its_end(library: Path, modules: Path) -> None:
    (modules / "keras.py").write_text(LARGE)
    (modules / "tensorflow.py").write_text(f"import keras\n{LARGE}")

    assert [False, True] == look(library, modules)[:2]


def test_a_library_that_is_not_there_is_not_found(library: Path) -> None:
    program = "import importlib.util; print(importlib.util.find_spec('jax'))"

    assert "None\n" == run(program, library)


def test_modules_keep_their_own_loaders(library: Path, modules: Path) -> None:
    """Data files are read with them, and inspect finds sources."""
    program = (
        "import tensorflow, inspect; print(inspect.getsource(tensorflow).strip()); print(vars(tensorflow.__loader__))"
    )
    text, attributes = run(program, library, modules).splitlines()

    assert LARGE == text
    assert "exec_module" not in attributes


@pytest.mark.parametrize("python", interpreters(), ids=lambda path: path.name)
def test_the_sitecustomize_that_ours_hides_is_run(library: Path, modules: Path, python: Path) -> None:
    own = "import sys; sys.own = (__name__, __file__, sys.modules[__name__].__spec__.origin)"
    (modules / "sitecustomize.py").write_text(own)
    path = str(modules / "sitecustomize.py")

    told = run("import sys; print(sys.own)", library, modules, python=python)

    assert f"{('sitecustomize', path, path)}\n" == told


def test_its_error_is_told_as_python_tells_it(library: Path, modules: Path) -> None:
    (modules / "sitecustomize.py").write_text("raise RuntimeError('own')")
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{library}{os.pathsep}{modules}"}
    result = subprocess.run([sys.executable, "-c", "print('ran')"], env=variables, capture_output=True, text=True)

    assert (0, "ran\n") == (result.returncode, result.stdout)
    assert "RuntimeError: own" in result.stderr


def test_a_program_in_a_zip_file_may_hold_the_library(library: Path, modules: Path, tmp_path: Path) -> None:
    archive = tmp_path / "all.zip"
    subprocess.run([sys.executable, "-m", "zipfile", "-c", str(archive), str(modules / "tensorflow.py")], check=True)

    assert [False, True] == look(library, archive)[:2]


def test_starting_it_loads_nothing_large(library: Path) -> None:
    """Every Python of a program does."""
    program = "import sys; print(*sorted(sys.modules))"
    plain = run(program).split()

    assert {"gc", "sitecustomize"} >= set(run(program, library).split()) - set(plain)
