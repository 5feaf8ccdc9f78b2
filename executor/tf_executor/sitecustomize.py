"""For the user's program, as the `sitecustomize` of its Python: large libraries are imported faster. Python 2.7 and 3.

What TensorFlow makes while it is imported, about half a million objects, stays. Python's cyclic garbage collector looks
through all of it again and again, which is a fifth of the import's time. Here it pauses during the import, and what is
there afterwards is set aside (`gc.freeze`, Python 3.7) until the first full collection, which looks at everything as it
would without us. TF_EXECUTOR_QUICK_IMPORT=0 in a task's environment leaves all as it is.
"""

import gc
import os
import sys

#: typing itself would be loaded by every Python of the program; and annotations are not for Python 2.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable  # noqa: F401 - in the comments

#: Whose import is long.
LARGE = ("tensorflow", "keras", "torch", "jax")
SWITCH = "TF_EXECUTOR_QUICK_IMPORT"
#: Of a garbage collection: all generations.
FULL = 2


class LargeLibraries:
    """A finder that finds nothing itself: it asks the others, and has what they find executed `quickly`."""

    def __init__(self):
        # type: () -> None
        self._asking = False

    def find_spec(self, name, path=None, target=None):
        # type: (str, Any, Any) -> Any
        """See importlib.abc.MetaPathFinder."""
        if name not in LARGE or self._asking:
            return None
        self._asking = True
        try:
            spec = found(name, path, target)
        finally:
            self._asking = False
        if spec is not None:
            hasten(spec.loader)
        return spec


def found(name, path=None, target=None):
    # type: (str, Any, Any) -> Any
    """The spec that the first finder has; None: nobody has one."""
    specs = (finder.find_spec(name, path, target) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    return next((spec for spec in specs if spec is not None), None)


def hasten(loader):
    # type: (Any) -> None
    """Have it execute its module `quickly`, once. The loader stays what it was, for whoever asks the module for it, and
    whoever has put an `exec_module` of its own there, as tools that wait for imports do, keeps that."""
    if isinstance(loader, type) or not hasattr(loader, "exec_module"):
        return
    mine = getattr(loader, "__dict__", {})
    before = mine.get("exec_module")

    def execute(module):
        # type: (Any) -> None
        if before is None:
            del loader.exec_module
        else:
            loader.exec_module = before
        quickly(lambda: loader.exec_module(module))

    try:
        loader.exec_module = execute
    except AttributeError:
        return  # not one of Python's own


def quickly(run):
    # type: (Callable[[], Any]) -> None
    """Call it without garbage collection; what is there afterwards is looked at in the next full one."""
    if not gc.isenabled():
        run()
        return
    gc.disable()
    try:
        run()
    finally:
        if hasattr(gc, "freeze"):
            gc.freeze()
            if take_back not in gc.callbacks:
                gc.callbacks.append(take_back)
        gc.enable()


def take_back(phase, info):
    # type: (str, dict[str, int]) -> None
    """Before a full collection, also that of Python's end: what was set aside is part of it, and of all that follow."""
    if phase == "start" and info["generation"] == FULL:
        gc.unfreeze()
        gc.callbacks.remove(take_back)


def run_the_next():
    # type: () -> None
    """That of the machine or of the virtual environment, which this one hides, takes its place."""
    here = os.path.dirname(__file__)
    if here not in sys.path:
        return
    behind = sys.path[sys.path.index(here) + 1 :]
    if sys.version_info[0] < 3:  # noqa: UP036 - the program's Python, not ours
        run_the_next_of_python_2(behind)
        return
    spec = found("sitecustomize", behind)
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)


def run_the_next_of_python_2(path):
    # type: (list[str]) -> None
    import imp  # type: ignore[import-not-found, unused-ignore]

    try:
        place = imp.find_module("sitecustomize", path)
    except ImportError:
        return
    imp.load_module("sitecustomize", *place)  # type: ignore[arg-type, unused-ignore]


if __name__ == "sitecustomize":
    if os.environ.get(SWITCH) != "0" and sys.version_info[0] > 2:
        if not any(type(finder).__name__ == LargeLibraries.__name__ for finder in sys.meta_path):
            sys.meta_path.insert(0, LargeLibraries())
    run_the_next()
