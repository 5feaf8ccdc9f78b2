"""Large libraries are imported without garbage collection, and all else is as without us."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
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
#: An object in a cycle, made before the import, which tells its end.
CYCLE = """
import gc, sys
class Cycle:
    def __init__(self): self.own = self
    def __del__(self): print("gone")
one = Cycle()
import tensorflow
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


def run(
    program: str, *folders: Path, python: Path | str = sys.executable, options: Sequence[str] = (), **environment: str
) -> str:
    """Standard output, with site, as users' programs start, unless `options` of Python say otherwise."""
    path = os.pathsep.join(map(str, folders))
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    result = subprocess.run(
        [str(python), *options, "-W", "error", "-c", program],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
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


@pytest.mark.parametrize("python", interpreters(), ids=lambda path: path.name)
def test_what_was_there_before_is_garbage_in_its_time_as_without_us(library: Path, modules: Path, python: Path) -> None:
    """When the program asks, and at its end."""
    asked = "del one; print(gc.collect() > 0)"

    assert "gone\nTrue\nend\n" == run(f"{CYCLE}{asked}; print('end')", library, modules, python=python)
    assert "end\ngone\n" == run(f"{CYCLE}del one; print('end')", library, modules, python=python)
    assert "end\ngone\n" == run(f"{CYCLE}print('end')", library, modules, python=python)


#: What tools that wait for imports do: a finder, which was there before ours, with a loader of its own.
TOOL = """
import sys
class Loader:
    def __init__(self, inner):
        self.inner = inner
        self.exec_module = self.run
    def create_module(self, spec): return self.inner.create_module(spec)
    def run(self, module):
        self.inner.exec_module(module)
        print("the tool saw", module.__name__)
class Tool:
    busy = False
    def find_spec(self, name, path=None, target=None):
        if name != "tensorflow" or self.busy: return None
        self.busy = True
        from importlib.util import find_spec
        spec = find_spec(name)
        self.busy = False
        spec.loader = Loader(spec.loader)
        return spec
sys.meta_path.insert(0, Tool())
"""


@pytest.mark.parametrize(
    "order", [(TOOL, "import sitecustomize"), ("import sitecustomize", TOOL)], ids=["before", "after"]
)
def test_tools_that_wait_for_imports_go_on_hearing_of_them(
    library: Path, modules: Path, order: tuple[str, str]
) -> None:
    first, second = order
    program = f"{first}\n{second}\nimport tensorflow; print(tensorflow.collecting)"

    assert "the tool saw tensorflow\nFalse\n" == run(program, library, modules, options=("-S",))


def test_loaders_that_cannot_be_changed_are_left_alone(library: Path, modules: Path) -> None:
    """A class, as that of built-in modules is, or one without attributes of its own."""
    program = """
import importlib.machinery, sys
class Loader:
    __slots__ = ()
    @staticmethod
    def create_module(spec): return None
    @staticmethod
    def exec_module(module): module.here = True
class Finder:
    def find_spec(self, name, path=None, target=None):
        chosen = {"jax": Loader, "torch": Loader()}.get(name)
        return chosen and importlib.machinery.ModuleSpec(name, chosen)
sys.meta_path.insert(1, Finder())
import jax, torch
print(jax.here, torch.here)
"""
    assert "True True\n" == run(program, library, modules)


def test_two_copies_do_what_one_does(library: Path, modules: Path, tmp_path: Path) -> None:
    """A task's program may start another one of ours, and folders have several names."""
    other = user_package.write(str(tmp_path / "other"))
    alias = tmp_path / "alias"
    alias.symlink_to(library)
    (modules / "sitecustomize.py").write_text("import sys; sys.own = True")
    program = """
import sys, tensorflow
print(sys.own, tensorflow.collecting, [type(finder).__name__ for finder in sys.meta_path].count("LargeLibraries"))
"""

    assert "True False 1\n" == run(program, library, other, alias, modules)


def test_a_package_may_be_the_next(library: Path, modules: Path) -> None:
    (modules / "sitecustomize").mkdir()
    (modules / "sitecustomize" / "__init__.py").write_text("from . import part")
    (modules / "sitecustomize" / "part.py").write_text("import sys; sys.own = __name__")

    assert "sitecustomize.part\n" == run("import sys; print(sys.own)", library, modules)


PYTHON_2 = [path for folder in os.get_exec_path() for path in [Path(folder) / "python2.7"] if path.is_file()]
PYTHON_2 += list(Path.home().glob(".pyenv/versions/2.7.*/bin/python2.7"))


@pytest.mark.skipif(not PYTHON_2, reason="there is no Python 2.7")
def test_python_2_is_not_disturbed(library: Path, modules: Path) -> None:
    """TensorFlow 1 ran on it, and programs may start others."""
    (modules / "sitecustomize.py").write_text("import sys; sys.own = True")
    program = "import sys, tensorflow; print(sys.own); print(tensorflow.collecting)"
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{library}{os.pathsep}{modules}"}
    result = subprocess.run([str(PYTHON_2[-1]), "-c", program], env=variables, capture_output=True, text=True)

    assert (0, "True\nTrue\n", "") == (result.returncode, result.stdout, result.stderr)
