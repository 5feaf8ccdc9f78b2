"""Which TensorFlow runs on which Python, and what is to be installed with it. Pure.

Source: the tested build configurations of TensorFlow's installation guide, and the `Requires-Python` of its wheels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: First version of a series -> the Python 3 minor versions that its wheels are made for, first and last.
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
#: From this one on the Keras in TensorFlow is Keras 3, with which distributed `Model.fit` does not work.
_KERAS_3 = (2, 16)
_VERSION = re.compile(r"(\d+)\.(\d+)(\.\d+)?")
#: Minor version of the first Python 3 that tf_executor runs programs with.
OLDEST_PYTHON = 6
_PYTHON = re.compile(r"3\.(\d+)")
#: A name with its versions, and when it is needed (Python packaging, "Dependency specifiers"); pip takes paths, too.
_REQUIREMENT = re.compile(
    r"""\s*[a-z0-9]([a-z0-9._-]*[a-z0-9])?\s*(\[[a-z0-9._,\s-]*\])?
    \s*(\(?\s*(~=|===?|!=|<=?|>=?)\s*[a-z0-9.*+!_-]+(\s*,\s*(~=|===?|!=|<=?|>=?)\s*[a-z0-9.*+!_-]+)*\s*,?\s*\)?)?
    \s*(;.*\b(python_\w+|os_name|sys_platform|platform_\w+|implementation_\w+|extra)\b.*)?""",
    re.VERBOSE | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class RuntimeRequest:
    """What a runtime shall have."""

    #: `2.20` or `2.20.0`; empty: no TensorFlow.
    tensorflow: str = ""
    #: With CUDA.
    gpu: bool = False
    #: Further requirements, as pip takes them.
    others: tuple[str, ...] = ()
    #: The same, of such as are built of their sources, against what is installed before.
    builds: tuple[str, ...] = ()


def request_problems(wanted: RuntimeRequest, python: str) -> list[str]:
    """Why that cannot be, as sentences; `python` is `3.11`."""
    found = []
    if not (wanted.tensorflow or wanted.others or wanted.builds):
        found.append("there is nothing to install: say --tensorflow VERSION or --package REQUIREMENT")
    minor = _PYTHON.fullmatch(python)
    if minor is None:
        found.append(f"--python must be a version such as 3.11, not {python}")
    found += [
        f"{text!r} is no requirement: say a name, such as numpy or 'numpy<2', or a path"
        for text in (*wanted.others, *wanted.builds)
        if not _is_pip_argument(text)
    ]
    if wanted.tensorflow:
        found += _tensorflow_problems(wanted.tensorflow, None if minor is None else int(minor[1]))
    return found


def is_supported_python(python: str) -> bool:
    """Whether programs of tasks can run on it: `3`, `3.11`, `3.11.7` (docs/tasks.md)."""
    found = re.fullmatch(r"3(\.(\d+)(\.\d+)?)?", python)
    return found is not None and (found[2] is None or int(found[2]) >= OLDEST_PYTHON)


def _is_pip_argument(text: str) -> bool:
    """Whether it may be one: of paths, addresses and options only pip knows."""
    before = text.partition(";")[0]
    return "/" in before or before.startswith((".", "-")) or _REQUIREMENT.fullmatch(text) is not None


def _tensorflow_problems(version: str, minor: int | None) -> list[str]:
    series = _series(version)
    if series is None:
        return [f"--tensorflow must be a version such as 2.20 or 2.20.0, not {version}"]
    if series < _OLDEST or (1, 15) < series < (2, 0):
        return [f"TensorFlow {version} has no wheels that work here; 1.15 and 2.0 to today are the choice"]
    first, last = _PYTHONS[max(start for start in _PYTHONS if start <= series)]
    # Of versions that came after this table nobody knows yet where they end.
    known = series <= max(_PYTHONS)
    if minor is not None and (minor < first or (known and minor > last)):
        return [f"TensorFlow {version} needs Python 3.{first} to 3.{last}, not 3.{minor}: say --python"]
    return []


def pip_arguments(wanted: RuntimeRequest) -> list[tuple[str, ...]]:
    """What to give to `pip install`, one call after the other."""
    calls = _wheel_arguments(wanted)
    if wanted.builds:
        # What was built against another TensorFlow must not come from pip's cache.
        calls.append(("--no-build-isolation", "--no-cache-dir", *wanted.builds))
    return calls


def _wheel_arguments(wanted: RuntimeRequest) -> list[tuple[str, ...]]:
    series = _series(wanted.tensorflow) if wanted.tensorflow else None
    if series is None:
        return [wanted.others] if wanted.others else []
    exact = f"=={wanted.tensorflow}" if wanted.tensorflow.count(".") == 2 else f"=={wanted.tensorflow}.*"
    calls = [(_distribution(series, wanted.gpu) + exact, *_old_pins(series), *wanted.others)]
    if series >= _KERAS_3:
        # With its own dependencies it would bring a second TensorFlow.
        calls.append(("--no-deps", f"tf_keras=={series[0]}.{series[1]}.*"))
    return calls


def _distribution(series: tuple[int, int], gpu: bool) -> str:
    if not gpu:
        return "tensorflow-cpu"
    return "tensorflow-gpu" if series < (2, 0) else "tensorflow[and-cuda]" if series >= (2, 14) else "tensorflow"


def _old_pins(series: tuple[int, int]) -> tuple[str, ...]:
    """TensorFlow before 2.9 does not say that it cannot live with today's protobuf."""
    return ("protobuf<3.21",) if series < (2, 9) else ()


def _series(version: str) -> tuple[int, int] | None:
    found = _VERSION.fullmatch(version)
    return None if found is None else (int(found[1]), int(found[2]))
