"""`options init`: a short, valid file for a program, which runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mesos_local.agents import AgentSpec, with_ports
from mesos_local.cluster import LocalCluster
from tf_executor.contract.strategies import Strategy
from tf_scheduler.cli.common import options_file
from tf_scheduler.cli.local_run import new_options
from tf_scheduler.options.load import resolve

FIT = "import tensorflow as tf\ntf.distribute.MultiWorkerMirroredStrategy()\nmodel.fit(data)\n"
#: Where one task ends the job, all others wait until they are stopped.
STAND_IN = "import os, signal\nif os.environ['TASK_NAME'] not in {last}:\n    signal.pause()\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, named after the job, with a program."""
    path = tmp_path / "mnist"
    path.mkdir()
    (path / "train.py").write_text(FIT)
    monkeypatch.chdir(path)
    monkeypatch.setattr(new_options, "find_spec", lambda _: "present")
    return path


@pytest.fixture
def with_versions(monkeypatch: pytest.MonkeyPatch):
    """Set the versions of the interpreter's TensorFlow and Keras."""
    return lambda **versions: monkeypatch.setattr(options_file, "keras_versions", lambda _: versions)


def test_init_writes_what_a_job_needs(invoke, folder: Path, with_versions) -> None:
    """The message names the tasks, the reason for Keras 2, and the next command."""
    with_versions(keras="3.15.1", tf_keras="2.21.0", tensorflow_cpu="2.21.0")

    assert invoke("options", "init", "multi_worker_mirrored", "train.py") == (
        0,
        "wrote options.json: 2 workers of 0.5 cpus and 1024 MB; TF_USE_LEGACY_KERAS=1, because train.py uses Model.fit."
        " Run it: dcos-tensorflow local run options.json\n",
        "",
    )
    service = {"name": "mnist", "strategy": "multi_worker_mirrored", "job_url": "train.py"}
    assert json.loads((folder / "options.json").read_text()) == {
        "service": {**service, "command": "python train.py", "environment": {"TF_USE_LEGACY_KERAS": "1"}},
        "worker": {"count": 2, "cpus": 0.5, "mem": 1024},
    }


@pytest.mark.parametrize(
    ("versions", "is_set", "notice"),
    [
        ({"keras": "3.15.1", "tensorflow": "2.21.0"}, True, 'pip install --no-deps "tf_keras~=2.21.0"'),
        ({"keras": "2.15.0", "tensorflow": "2.15.1"}, False, ""),
        ({}, False, ""),
    ],
)
def test_init_sets_keras_2_only_for_keras_3(
    invoke, folder: Path, with_versions, versions: dict[str, str], is_set: bool, notice: str
) -> None:
    with_versions(**versions)

    code, _, error = invoke("options", "init", "MultiWorkerMirroredStrategy")

    assert (0, bool(notice)) == (code, bool(error))
    assert notice in error
    assert is_set is ("environment" in json.loads((folder / "options.json").read_text())["service"])


def test_keras_imported_alone_stays_keras_3(invoke, folder: Path, with_versions) -> None:
    """The variable changes tf.keras only, so that the program must be changed."""
    with_versions(keras="3.15.1", tf_keras="2.21.0")
    (folder / "train.py").write_text(f"import keras\n{FIT}")

    _, out, error = invoke("options", "init", "multi_worker_mirrored")

    assert "LEGACY" not in out
    assert "notice: train.py:4: Model.fit of Keras 3.15 does not work with MultiWorkerMirroredStrategy" in error
    assert "import tf_keras in place of keras" in error


def test_init_scans_modules_of_the_program(invoke, folder: Path, with_versions) -> None:
    """Also in packages, and relative imports."""
    with_versions(keras="3.15.1", tf_keras="2.21.0")
    (folder / "lib").mkdir()
    (folder / "train.py").write_text("import lib.loop")
    (folder / "lib" / "__init__.py").write_text("")
    (folder / "lib" / "loop.py").write_text("from . import fit")
    (folder / "lib" / "fit.py").write_text(FIT)

    assert "because lib/fit.py uses Model.fit" in invoke("options", "init", "multi_worker_mirrored")[1]


def test_init_does_not_replace_a_file_silently(invoke, folder: Path) -> None:
    (folder / "options.json").write_text("mine")

    code, out, error = invoke("options", "init", "independent")

    assert (1, "", "options.json: already exists; replace it with --force\n") == (code, out, error)
    assert "mine" == (folder / "options.json").read_text()
    assert 0 == invoke("options", "init", "independent", "--force")[0]
    assert "mnist" in (folder / "options.json").read_text()


@pytest.mark.parametrize("strategy", Strategy)
def test_file_for_dcos_is_a_valid_package_configuration(invoke, folder: Path, with_versions, strategy) -> None:
    """Cosmos accepts environments as lists only."""
    with_versions(keras="3.15.1", tf_keras="2.21.0")

    code, out, error = invoke("options", "init", strategy.value, "--dcos", "--workers", "3", "-o", "dcos.json")

    assert (0, True) == (code, out.endswith("Run it: dcos package install tensorflow --options=dcos.json\n"))
    assert "service.job_url: replace it by a URL" in error
    assert 3 == resolve(json.loads((folder / "dcos.json").read_text()))["worker"]["count"]
    assert 0 == invoke("package", "render", "--options", "dcos.json")[0]


def test_init_names_what_is_wrong(invoke, folder: Path) -> None:
    """A program as the first argument, a missing program, another strategy."""
    swapped = invoke("options", "init", "train.py")
    missing = invoke("options", "init", "horovod", "other.py", "-o", "a.json")
    other = invoke("options", "init", "parameter_server", "-o", "b.json")

    assert (2, True) == (
        swapped[0],
        "name the strategy first: options init multi_worker_mirrored train.py" in swapped[2],
    )
    assert (0, "notice: other.py: does not exist yet\n") == missing[::2]
    assert "train.py: uses MultiWorkerMirroredStrategy (multi_worker_mirrored), not parameter_server" in other[2]


def test_folder_of_a_program_with_modules_is_used(invoke, folder: Path) -> None:
    (folder / "train.py").write_text("import lib")
    (folder / "lib.py").touch()

    invoke("options", "init", "independent", "-o", "a.json")

    service = json.loads((folder / "a.json").read_text())["service"]
    assert (".", "python train.py") == (service["job_url"], service["command"])


def test_runtime_of_a_library_is_used(invoke, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it does not exist, the command that creates it is printed."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(new_options, "find_spec", lambda _: None)
    (folder / "train.py").write_text("import horovod.tensorflow as hvd\nhvd.init()")

    _, _, error = invoke("options", "init", "horovod")

    assert "runtime:horovod" == json.loads((folder / "options.json").read_text())["service"]["python"]
    assert "dcos-tensorflow runtime create horovod --tensorflow 2.13" in error
    invoke("options", "init", "horovod", "--dcos", "-o", "dcos.json")
    assert "python" not in json.loads((folder / "dcos.json").read_text())["service"]


@pytest.mark.parametrize(
    ("missing", "release", "name"),
    [
        ([], "2.13", "mine"),
        (["sklearn"], "2.13", "horovod-scikit-learn"),
        ([], "1.15", "horovod-scikit-learn"),
        ([], "", "horovod-scikit-learn"),
    ],
)
def test_existing_runtime_with_all_libraries_is_used(
    invoke, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: list[str], release: str, name: str
) -> None:
    """Its name need not tell its packages."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(new_options, "find_spec", lambda _: None)
    monkeypatch.setattr(new_options, "missing_modules", lambda *_: missing)
    runtime = tmp_path / "data" / "dcos-tensorflow" / "runtimes" / "mine"
    runtime.mkdir(parents=True)
    content = {"name": "mine", "python": sys.executable, "version": "3.11.7", "tensorflow": release, "others": []}
    (runtime / "runtime.json").write_text(json.dumps(content))
    (folder / "train.py").write_text("import horovod.tensorflow as hvd\nimport sklearn\nhvd.init()")

    invoke("options", "init", "horovod")

    assert f"runtime:{name}" == json.loads((folder / "options.json").read_text())["service"]["python"]


@pytest.mark.parametrize(
    ("source", "runtime", "is_set"),
    [(FIT, "tf2.21", True), (f"{FIT}tf.estimator\n", "tf2.15", False), (f"import keras\n{FIT}", "tf2.21", False)],
)
def test_keras_of_a_runtime_to_create_counts(
    invoke, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, runtime: str, is_set: bool
) -> None:
    """This Python has no Keras; the file must train once the runtime exists."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(new_options, "find_spec", lambda _: None)
    (folder / "train.py").write_text(source)

    code, _, error = invoke("options", "init", "multi_worker_mirrored")

    service = json.loads((folder / "options.json").read_text())["service"]
    assert (0, f"runtime:{runtime}", is_set) == (code, service["python"], "environment" in service)
    assert ["service.python"] == [line.split(": ")[1] for line in error.splitlines()]


def test_amounts_fit_the_running_cluster(invoke, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run uses it, not agents of its own."""
    agents = with_ports([AgentSpec("small", {"cpus": 0.5, "mem": 3000})])
    monkeypatch.setattr(LocalCluster, "running", lambda _: SimpleNamespace(specs=agents))

    assert "wrote options.json: 2 workers of 0.1 cpus" in invoke("options", "init", "multi_worker_mirrored")[1]


def test_init_answers_in_json(invoke, folder: Path) -> None:
    answer = json.loads(invoke("options", "init", "independent", "--json")[1])

    assert ("options.json", "dcos-tensorflow local run options.json") == (answer["file"], answer["next"])
    assert json.loads((folder / "options.json").read_text()) == answer["options"]


def test_options_in_yaml_are_rewritten(invoke, folder: Path) -> None:
    """The error about YAML names the command."""
    text = "service: {name: mnist, strategy: independent, command: python train.py}\nworker:\n  count: 1\n"
    Path("mnist.yaml").write_text(text)

    _, refused, _ = invoke("options", "validate", "mnist.yaml")
    code, out, error = invoke("options", "init", "--from", "mnist.yaml")

    assert "mnist.yaml is YAML; as JSON: `dcos-tensorflow options init --from mnist.yaml`\n" == refused
    assert (0, "") == (code, error)
    assert "wrote options.json: the options of mnist.yaml. Run it: dcos-tensorflow local run options.json\n" == out
    service = {"name": "mnist", "strategy": "independent", "command": "python train.py"}
    assert {"service": service, "worker": {"count": 1}} == json.loads(Path("options.json").read_text())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("worker: {cont: 1}", "worker.cont: unknown option"),
        ("a: 2020-01-01", "quote the value"),
        ("a: 1\n---\nb: 2", "contains 2 documents"),
        ("- 1", "must hold a JSON object"),
        ("a: [", "1:5: invalid YAML"),
    ],
)
def test_wrong_yaml_is_not_written(invoke, folder: Path, text: str, message: str) -> None:
    Path("a.yaml").write_text(text)

    code, _, error = invoke("options", "init", "--from", "a.yaml")

    assert (1, False) == (code, Path("options.json").exists())
    assert message in error


def test_init_requires_strategy_or_file(invoke, folder: Path) -> None:
    assert (2, 2) == (invoke("options", "init")[0], invoke("options", "init", "horovod", "--from", "a.yaml")[0])


def test_paths_are_relative_to_the_options_file(invoke, folder: Path) -> None:
    (folder / "files").mkdir()

    invoke("options", "init", "independent", "train.py", "-o", "files/a.json")

    assert "../train.py" == json.loads((folder / "files" / "a.json").read_text())["service"]["job_url"]


def test_explain_starts_with_options_of_most_jobs(invoke) -> None:
    """A dozen, and the sections of all others."""
    code, out, _ = invoke("options", "explain")

    first = [line.partition(":")[0] for line in out.splitlines() if line.startswith(("service.", "worker.", "para"))]
    assert (0, 12, "service.name") == (code, len(first), first[0])
    assert "options explain SECTION" in out.splitlines()[-1]


@pytest.mark.usefixtures("real_mesos")
@pytest.mark.parametrize("strategy", Strategy)
def test_new_file_of_each_strategy_runs(run_process, folder: Path, strategy: Strategy) -> None:
    """With a program that only joins the cluster."""
    last = ["worker-0", "worker-1"] if strategy.traits.ends_with_all else ["worker-0"]
    last = ["chief-0"] if strategy is Strategy.PARAMETER_SERVER else last
    (folder / "train.py").write_text(STAND_IN.format(last=last))
    code, _, error = run_process("options", "init", strategy.value)
    assert 0 == code, error

    code, out, error = run_process("local", "run", "options.json", "--json")

    assert (0, "succeeded") == (code, json.loads(out)["state"]), error
