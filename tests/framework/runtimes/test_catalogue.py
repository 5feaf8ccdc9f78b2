"""Supported Python versions of each TensorFlow."""

import pytest

from tf_scheduler.runtimes.catalogue import RuntimeRequest, is_supported_python, pip_arguments, request_problems


@pytest.mark.parametrize(
    ("tensorflow", "python"),
    [("1.15", "3.7"), ("2.12.1", "3.8"), ("2.15", "3.11"), ("2.20", "3.13"), ("2.21.0", "3.10"), ("2.30", "3.15")],
)
def test_supported_versions_are_accepted(tensorflow, python) -> None:
    """pip decides about versions newer than the table."""
    assert [] == request_problems(RuntimeRequest(tensorflow), python)


@pytest.mark.parametrize(
    ("tensorflow", "python", "reason"),
    [
        ("1.15", "3.11", "TensorFlow 1.15 needs Python 3.5 to 3.7, not 3.11; choose one with --python"),
        ("2.15", "3.12", "TensorFlow 2.15 needs Python 3.9 to 3.11, not 3.12; choose one with --python"),
        ("2.30", "3.9", "TensorFlow 2.30 needs Python 3.10 to 3.13, not 3.9; choose one with --python"),
        ("1.4", "3.6", "TensorFlow 1.4 has no usable wheels; choose 1.15, or 2.0 or newer"),
        ("latest", "3.11", "--tensorflow: `latest`: must be a version such as 2.20 or 2.20.0"),
        ("2.20", "4.0", "--python: `4.0`: must be a version such as 3.11"),
    ],
)
def test_unsupported_versions_are_refused(tensorflow, python, reason) -> None:
    """Before anything is downloaded."""
    assert [reason] == request_problems(RuntimeRequest(tensorflow), python)


@pytest.mark.parametrize(
    "text",
    [
        "numpy",
        "numpy<2,>=1.20",
        "torch==2.6.0+cpu",
        "tensorflow[and-cuda] ~= 2.15.0",
        "typing-extensions; python_version < '3.12'",
        "./own",
        "/a/marker-1.0-py3-none-any.whl",
        "own @ https://example.com/own.zip",
        "-e.",
    ],
)
def test_requirements_of_pip_are_accepted(text) -> None:
    """pip decides about paths, URLs and options."""
    assert [] == request_problems(RuntimeRequest(others=(text,)), "3.11")


@pytest.mark.parametrize("text", ["six; rm -rf /", "six; six", "numpy 2", "two words", "", "numpy=2", "six && true"])
def test_invalid_requirement_is_refused(text) -> None:
    (reason,) = request_problems(RuntimeRequest(builds=(text,)), "3.11")

    assert reason.startswith(f"`{text}`: invalid requirement")


@pytest.mark.parametrize(("python", "is_one"), [("3", True), ("3.6", True), ("3.11.7", True), ("3.5", False)])
def test_programs_need_python_3_6(python, is_one) -> None:
    assert is_one is is_supported_python(python)


def test_pip_arguments_of_each_version() -> None:
    """Newest of a series; tf_keras since Keras 3; protobuf and TensorBoard by version."""
    assert [("tensorflow-cpu==2.15.1",)] == pip_arguments(RuntimeRequest("2.15.1"))
    assert [("tensorflow[and-cuda]==2.20.*", "pandas"), ("--no-deps", "tf_keras==2.20.*")] == pip_arguments(
        RuntimeRequest("2.20", gpu=True, others=("pandas",))
    )
    assert ("tensorflow-cpu==2.21.*", "tensorboard") == pip_arguments(RuntimeRequest("2.21"))[0]
    assert [("tensorflow==1.15.*", "protobuf<3.21")] == pip_arguments(RuntimeRequest("1.15"))
    assert [("six",)] == pip_arguments(RuntimeRequest(others=("six",)))


@pytest.mark.parametrize(
    ("version", "gpu", "name"),
    [
        ("1.15.0", False, "tensorflow-cpu"),
        ("1.15.5", False, "tensorflow"),
        ("1.15.5", True, "tensorflow-gpu"),
        ("2.0.4", False, "tensorflow"),
        ("2.0", True, "tensorflow-gpu"),
        ("2.1", False, "tensorflow-cpu"),
        ("2.1", True, "tensorflow"),
    ],
)
def test_old_versions_have_published_packages(version: str, gpu: bool, name: str) -> None:
    """tensorflow-cpu lacks most versions before 2.1."""
    ((package, *_),) = pip_arguments(RuntimeRequest(version, gpu=gpu))

    assert name == package.partition("=")[0]


def test_source_builds_come_last_without_cache() -> None:
    """The cache may hold a build for another TensorFlow."""
    wanted = RuntimeRequest("2.13", others=("wheel",), builds=("horovod==0.28.1",))

    last = ("--no-build-isolation", "--no-cache-dir", "horovod==0.28.1")
    assert [("tensorflow-cpu==2.13.*", "wheel"), last] == pip_arguments(wanted)
    assert [(*last[:2], "own")] == pip_arguments(RuntimeRequest(builds=("own",)))
    assert [] == request_problems(RuntimeRequest(builds=("own",)), "3.11")
