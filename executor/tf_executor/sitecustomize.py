"""For the user's program, as the `sitecustomize` of its Python: large libraries are imported faster. Python 3.6.

What TensorFlow makes while it is imported, about half a million objects, stays. Python's cyclic garbage collector looks
through all of it again and again, which is a fifth of the import's time, and later once more in each full collection.
Here it pauses during the import, and leaves alone what is there afterwards (`gc.freeze`, Python 3.7).
TF_EXECUTOR_QUICK_IMPORT=0 in a task's environment leaves all as it is.
"""

import gc
import os
import sys

#: typing itself would be loaded by every Python of the program.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

#: Whose import is long.
LARGE = ("tensorflow", "keras", "torch", "jax")
SWITCH = "TF_EXECUTOR_QUICK_IMPORT"


class LargeLibraries:
    """A finder that finds nothing itself: it asks the others, and has what they find executed `quickly`."""

    def __init__(self) -> None:
        self._asking = False

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        """See importlib.abc.MetaPathFinder."""
        if name not in LARGE or self._asking:
            return None
        self._asking = True
        try:
            spec = found(name, path, target)
        finally:
            self._asking = False
        if spec is not None and hasattr(spec.loader, "exec_module"):
            hasten(spec.loader)
        return spec


def found(name: str, path: "Any" = None, target: "Any" = None) -> "Any":
    """The spec that the first finder has; None: nobody has one."""
    specs = (finder.find_spec(name, path, target) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    return next((spec for spec in specs if spec is not None), None)


def hasten(loader: "Any") -> None:
    """Have it execute its module `quickly`, once. The loader stays the one that it was, for whoever asks the module."""

    def execute(module: "Any") -> None:
        del loader.exec_module
        quickly(lambda: loader.exec_module(module))

    try:
        loader.exec_module = execute
    except AttributeError:
        return  # not one of Python's own


def quickly(run: "Callable[[], Any]") -> None:
    """Call it without garbage collection; what is there afterwards is not looked at again."""
    if not gc.isenabled():
        run()
        return
    gc.disable()
    try:
        run()
    finally:
        if hasattr(gc, "freeze"):
            gc.freeze()
        gc.enable()


def run_the_next() -> None:
    """That of the machine or of the virtual environment, which this one hides, takes its place."""
    here = os.path.dirname(os.path.abspath(__file__))
    spec = found(__name__, [entry for entry in sys.path if os.path.abspath(entry) != here])
    if spec is not None and hasattr(spec.loader, "exec_module"):
        module = type(sys)(__name__)
        module.__file__, module.__spec__, module.__loader__ = spec.origin, spec, spec.loader
        sys.modules[__name__] = module
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    if os.environ.get(SWITCH) != "0":
        sys.meta_path.insert(0, LargeLibraries())
    run_the_next()
