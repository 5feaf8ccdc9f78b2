"""`dcos-tensorflow runtime`, and `runtime:NAME` in options.

A small package stands in for TensorFlow, which takes more than a minute to install; test_versions.py has the real one.
"""

import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from jobs import WORKER_0, options


@pytest.fixture(autouse=True)
def _own_runtimes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def make_wheel(path: Path, source: str) -> Path:
    """A package of one module, so that nothing is downloaded."""
    name = path.name.partition("-")[0]
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", source)
        archive.writestr(f"{name}-1.0.dist-info/METADATA", metadata)
        archive.writestr(
            f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return path


@pytest.fixture
def wheel(real_release: None, tmp_path: Path) -> Path:
    return make_wheel(tmp_path / "marker-1.0-py3-none-any.whl", "HERE = 1\n")


def test_runtime_is_created_once_and_completely(run_process, tmp_path: Path, wheel: Path) -> None:
    """Creation is idempotent, rejects other content, and leaves nothing on failure."""
    made = run_process("runtime", "create", "mine", "--package", wheel, "--json")
    again = run_process("runtime", "create", "mine", "--package", wheel, "--json")

    assert (0, 0) == (made[0], again[0]), made[2]
    first, second = json.loads(made[1]), json.loads(again[1])
    assert (True, False) == (first.pop("made"), second.pop("made"))
    assert first == second
    subprocess.run([first["python"], "-c", "import marker"], check=True)

    other = run_process("runtime", "create", "mine", "--package", "another")
    assert (1, "") == other[:2]
    assert "`mine` already exists, on Python " in other[2]
    assert "but without TensorFlow" in other[2]

    failed = run_process("runtime", "create", "broken", "--package", tmp_path / "none.whl")
    assert (1, "") == failed[:2]
    assert "failed with exit code" in failed[2]
    assert ["mine"] == [one["name"] for one in json.loads(run_process("runtime", "list", "--json")[1])]
    assert not (tmp_path / "data" / "dcos-tensorflow" / "runtimes" / "broken").exists()

    assert 0 == run_process("runtime", "remove", "mine")[0]
    assert run_process("runtime", "list")[1].startswith("There are no runtimes yet.")
    assert "unknown runtime `mine`; valid names: none" in run_process("runtime", "remove", "mine")[2]


@pytest.mark.parametrize("swallowed", [False, True])
def test_packages_that_do_not_match_leave_nothing(run_process, tmp_path: Path, wheel: Path, swallowed: bool) -> None:
    """pip accepts some pairs that cannot be imported together; some only log it."""
    source = "from marker import MISSING\n"
    if swallowed:
        source = (
            "import logging\ntry:\n    from marker import MISSING\nexcept ImportError:\n    logging.exception('no')\n"
        )
    other = make_wheel(tmp_path / "other-1.0-py3-none-any.whl", source)

    code, out, err = run_process("runtime", "create", "mine", "--package", wheel, "--package", other)

    assert (1, "") == (code, out)
    assert "  Processing" in err
    assert "these packages do not work together: marker 1.0, other 1.0" in err
    assert "cannot import other, in other: ImportError: cannot import name 'MISSING' from 'marker'\n" in err
    assert not (tmp_path / "data" / "dcos-tensorflow" / "runtimes" / "mine").exists()


def test_package_is_built_against_the_runtime(run_process, tmp_path: Path, wheel: Path) -> None:
    """Its setup finds the other packages, and the programs of the environment."""
    source = tmp_path / "own"
    source.mkdir()
    (source / "setup.py").write_text(
        "import marker, shutil, sys, setuptools\n"
        "assert shutil.which('python').startswith(sys.prefix)\n"
        "open('own.py', 'w').write(f'BUILT_WITH = {marker.HERE}')\n"
        "setuptools.setup(name='own', version='1', py_modules=['own'])\n"
    )
    # Virtual environments of the newest Pythons lack these.
    tools = ["--package", "setuptools", "--package", "wheel"]
    created = run_process("runtime", "create", "mine", "--package", wheel, *tools, "--build", source, "--json")

    assert 0 == created[0], created[2]
    made = json.loads(created[1])
    subprocess.run([made["python"], "-c", "import own; assert own.BUILT_WITH == 1"], check=True)
    assert [str(source)] == made["builds"]
    assert str(source) in run_process("runtime", "list")[1]
    assert "`mine` already exists" in run_process("runtime", "create", "mine", "--package", wheel)[2]


def test_incomplete_runtime_is_created_again(run_process, tmp_path: Path, wheel: Path, succeed) -> None:
    """A killed command leaves one."""
    half = tmp_path / "data" / "dcos-tensorflow" / "runtimes" / "mine"
    (half / "bin").mkdir(parents=True)
    (half / "rubbish").touch()

    assert run_process("runtime", "list")[1].startswith("There are no runtimes yet.")
    out = succeed("runtime", "create", "mine", "--package", wheel)
    assert "mine is created" in out
    assert not (half / "rubbish").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--tensorflow", "1.15"), "TensorFlow 1.15 needs Python 3.5 to 3.7"),
        (
            ("--python", "3.99", "--tensorflow", "2.20"),
            "python3.99 is not installed on this machine; install it, or omit",
        ),
        (("--python", "3.99", "--tensorflow", "1.15"), "python3.99 is not installed on this machine; install it\n"),
        ((), "nothing to install"),
        (("--python", "2.7", "--package", "six"), "--python: `2.7`: must be 3.6 or newer, such as 3.11"),
        (("--package", "six; rm -rf /"), "`six; rm -rf /`: invalid requirement; use a name such as numpy"),
    ],
)
def test_invalid_runtime_is_rejected_first(run_process, tmp_path: Path, arguments, reason: str) -> None:
    code, out, err = run_process("runtime", "create", "mine", *arguments)

    assert (1, "") == (code, out)
    assert reason in err
    assert "making" not in err
    assert not (tmp_path / "data").exists()


def test_missing_runtime_is_reported_with_its_option(run_process, tmp_path: Path) -> None:
    """Before a cluster is started."""
    code, _, err = run_process("local", "run", options(tmp_path, service={"python": "runtime:gone"}))

    assert 1 == code
    assert "service.python: unknown runtime `gone`; valid names: none" in err


@pytest.mark.usefixtures("real_mesos")
def test_options_name_a_runtime(run_process, tmp_path: Path, wheel, succeed) -> None:
    """`python` in the command is its interpreter; the executor keeps its own.

    Slow: pip makes an environment, and the job has a cluster of its own.
    """
    made = json.loads(run_process("runtime", "create", "mine", "--package", wheel, "--json")[1])
    show = "python -c 'import marker, sys; print(sys.executable)'"

    path = options(tmp_path, WORKER_0.format(show), {"python": "runtime:mine"})
    out = succeed("local", "run", path, "--json")
    assert f"{made['python']}\n" == _output(out, "worker-0")


def _output(out, name):
    (logs,) = [task["logs"] for task in json.loads(out)["tasks"] if task["name"] == name]
    return (Path(logs) / "stdout").read_text()
