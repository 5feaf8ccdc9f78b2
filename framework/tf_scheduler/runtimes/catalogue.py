"""Look up Python versions and pip arguments for each TensorFlow version.

Source: the tested build configurations of TensorFlow's installation guide, and the `Requires-Python` of its wheels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: First TensorFlow version -> first and last Python 3 minor version of its wheels.
_PYTHONS = {
    (1, 15): (5, 7),
    (2, 0): (5, 7),
    (2, 2): (5, 8),
    (2, 4): (6, 8),
    (2, 5): (6, 9),
    (2, 7): (7, 9),
    (2, 8): (7, 10),
    (2, 11): (7, 10),
    (2, 12): (8, 11),
    (2, 14): (9, 11),
    (2, 16): (9, 12),
    (2, 20): (9, 13),
    (2, 21): (10, 13),
}
_OLDEST = min(_PYTHONS)
#: First version with Keras 3, which does not support distributed `Model.fit`.
_KERAS_3 = (2, 16)
#: First version that does not require TensorBoard, which its callback and `use_tensorboard` need.
_NO_TENSORBOARD = (2, 21)
_VERSION = re.compile(r"(\d+)\.(\d+)(\.\d+)?")
#: Oldest supported Python 3 minor version of programs.
OLDEST_PYTHON = 6
_PYTHON = re.compile(r"3\.(\d+)")
#: A requirement with versions and markers (Python packaging, "Dependency specifiers").
_REQUIREMENT = re.compile(
    r"""\s*[a-z0-9]([a-z0-9._-]*[a-z0-9])?\s*(\[[a-z0-9._,\s-]*\])?
    \s*(\(?\s*(~=|===?|!=|<=?|>=?)\s*[a-z0-9.*+!_-]+(\s*,\s*(~=|===?|!=|<=?|>=?)\s*[a-z0-9.*+!_-]+)*\s*,?\s*\)?)?
    \s*(;.*\b(python_\w+|os_name|sys_platform|platform_\w+|implementation_\w+|extra)\b.*)?""",
    re.VERBOSE | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class RuntimeRequest:
    """The requested content of a runtime."""

    #: `2.20` or `2.20.0`; empty: no TensorFlow.
    tensorflow: str = ""
    #: With CUDA.
    gpu: bool = False
    #: Further requirements, as pip takes them.
    others: tuple[str, ...] = ()
    #: Further requirements to build from source against the installed packages.
    builds: tuple[str, ...] = ()


def request_problems(wanted: RuntimeRequest, python: str) -> list[str]:
    """Return why a request is invalid; `python`: a version such as `3.11`."""
    problems = []
    if not (wanted.tensorflow or wanted.others or wanted.builds):
        problems.append("nothing to install; pass --tensorflow VERSION or --package REQUIREMENT")
    minor = _PYTHON.fullmatch(python)
    if minor is None:
        problems.append(f"--python: `{python}`: must be a version such as 3.11")
    problems += [
        f"`{text}`: invalid requirement; use a name such as numpy or 'numpy<2', or a path"
        for text in (*wanted.others, *wanted.builds)
        if not _is_pip_argument(text)
    ]
    if wanted.tensorflow:
        problems += _tensorflow_problems(wanted.tensorflow, None if minor is None else int(minor[1]))
    return problems


def is_supported_python(python: str) -> bool:
    """Whether tasks can run on a Python version such as `3`, `3.11` or `3.11.7`."""
    match = re.fullmatch(r"3(\.(\d+)(\.\d+)?)?", python)
    return match is not None and (match[2] is None or int(match[2]) >= OLDEST_PYTHON)


def _is_pip_argument(text: str) -> bool:
    """Whether pip may accept the text; pip itself checks paths, URLs and options."""
    before = text.partition(";")[0]
    return "/" in before or before.startswith((".", "-")) or _REQUIREMENT.fullmatch(text) is not None


def _tensorflow_problems(version: str, minor: int | None) -> list[str]:
    series = _series(version)
    if series is None:
        return [f"--tensorflow: `{version}`: must be a version such as 2.20 or 2.20.0"]
    if series < _OLDEST or (1, 15) < series < (2, 0):
        return [f"TensorFlow {version} has no usable wheels; choose 1.15, or 2.0 or newer"]
    first, last = _PYTHONS[max(start for start in _PYTHONS if start <= series)]
    # Newer versions than this table's may support newer Pythons.
    is_listed = series <= max(_PYTHONS)
    if minor is not None and (minor < first or (is_listed and minor > last)):
        return [f"TensorFlow {version} needs Python 3.{first} to 3.{last}, not 3.{minor}; choose one with --python"]
    return []


def creation_arguments(series: tuple[int, int] | None, own_minor: int) -> tuple[str, str]:
    """Return name and arguments of `runtime create`; `None`: the newest TensorFlow.

    The runtime uses the Python of this command, 3.`own_minor`, if TensorFlow supports this version.
    """
    version = max(series or max(_PYTHONS), _OLDEST)
    first, last = _PYTHONS[max(start for start in _PYTHONS if start <= version)]
    name = f"{version[0]}.{version[1]}"
    python = "" if first <= own_minor <= last else f" --python 3.{last}"
    return f"tf{name}", f"tf{name} --tensorflow {name}{python}"


#: First PyTorch version -> newest Python 3 minor version of its wheels.
_TORCH_PYTHONS = {(1, 8): 9, (1, 11): 10, (2, 0): 11, (2, 2): 12, (2, 6): 13}
#: First PyTorch version that works with NumPy 2.
_TORCH_NUMPY_2 = (2, 3)


def torch_creation_arguments(version: str, own_minor: int) -> tuple[str, str]:
    """Return name and arguments of `runtime create`; empty `version`: the newest."""
    series = _series(version)
    if series is None:
        return "torch", "torch --package torch --package numpy"
    exact = version if version.count(".") > 1 else f"{version}.*"
    numpy = '"numpy<2"' if series < _TORCH_NUMPY_2 else "numpy"
    last = max((minor for start, minor in _TORCH_PYTHONS.items() if start <= series), default=8)
    python = "" if own_minor <= last else f" --python 3.{last}"
    name = f"torch{series[0]}.{series[1]}"
    return name, f'{name} --package "torch=={exact}" --package {numpy}{python}'


def pip_arguments(wanted: RuntimeRequest) -> list[tuple[str, ...]]:
    """Return the arguments of each call of `pip install`."""
    calls = _wheel_arguments(wanted)
    if wanted.builds:
        # pip's cache may hold a build against another TensorFlow.
        calls.append(("--no-build-isolation", "--no-cache-dir", *wanted.builds))
    return calls


def _wheel_arguments(wanted: RuntimeRequest) -> list[tuple[str, ...]]:
    series = _series(wanted.tensorflow) if wanted.tensorflow else None
    if series is None:
        return [wanted.others] if wanted.others else []
    exact = f"=={wanted.tensorflow}" if wanted.tensorflow.count(".") == 2 else f"=={wanted.tensorflow}.*"
    pins = ("protobuf<3.21",) if series < (2, 9) else ()  # undeclared requirement of TensorFlow before 2.9
    others = (*(("tensorboard",) if series >= _NO_TENSORBOARD else ()), *wanted.others)
    calls = [(_distribution(wanted.tensorflow, series, wanted.gpu) + exact, *pins, *others)]
    if series >= _KERAS_3:
        # Its dependencies would install a second TensorFlow.
        calls.append(("--no-deps", f"tf_keras=={series[0]}.{series[1]}.*"))
    return calls


def _distribution(version: str, series: tuple[int, int], gpu: bool) -> str:
    if not gpu:
        # Of the versions before 2.1, only 1.15.0 is published as tensorflow-cpu.
        return "tensorflow" if series < (2, 1) and version != "1.15.0" else "tensorflow-cpu"
    return "tensorflow-gpu" if series < (2, 1) else "tensorflow[and-cuda]" if series >= (2, 14) else "tensorflow"


def _series(version: str) -> tuple[int, int] | None:
    match = _VERSION.fullmatch(version)
    return None if match is None else (int(match[1]), int(match[2]))
