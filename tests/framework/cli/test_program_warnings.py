"""Notices about programs that Keras 3 cannot train."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tf_executor
import tf_scheduler
from kit.commands import run_program
from own_runtimes import link_python
from tf_scheduler.cli.common import options_file
from tf_scheduler.cli.common.options_file import load_options, program_warnings
from tf_scheduler.options.load import resolve

FIT = "import tensorflow as tf\ntf.distribute.MultiWorkerMirroredStrategy()\nmodel.fit(data)\n"
KERAS_3 = {"keras": "3.15.1", "tf_keras": "2.21.0", "tensorflow_cpu": "2.21.0"}
NOTICE = (
    "train.py:3: Model.fit of Keras 3.15 does not work with MultiWorkerMirroredStrategy. tf_keras 2.21 is installed: "
    'add "environment": {"TF_USE_LEGACY_KERAS": "1"} to "service" (--set service.environment.TF_USE_LEGACY_KERAS=1)'
)
#: TensorFlow's multi-worker tutorial, in short.
TUTORIAL = """\
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
tf.random.set_seed(0)
x = tf.random.normal((640, 20)); y = tf.cast(tf.reduce_sum(x, 1) > 0, tf.int32)
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(64)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(32, activation="relu"), tf.keras.layers.Dense(2)])
    model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), ["accuracy"])
model.fit(data, epochs=2)
"""


@pytest.fixture
def warned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return the notices about a program, with these versions and options."""

    def call(source: str = FIT, versions: dict[str, str] = KERAS_3, service=None, **sections: Any) -> list[str]:
        monkeypatch.setattr(options_file, "keras_versions", lambda _: versions)
        (tmp_path / "train.py").write_text(source)
        service = {"job_url": "train.py", "command": "python train.py", "python": sys.executable, **(service or {})}
        document = {"service": service, "parameter_server": {"count": 0}, "worker": {"count": 2}, **sections}
        return [str(problem) for problem in program_warnings(resolve(document), tmp_path)]

    return call


def test_fit_with_keras_3_is_reported(warned) -> None:
    """With the line and the remedy."""
    install = {name: version for name, version in KERAS_3.items() if name != "tf_keras"}

    assert [NOTICE] == warned()
    assert ['. Install tf_keras (pip install --no-deps "tf_keras~=2.21.0") and add "environment"'] == [
        text[text.index(". Install") : text.index(": {")] for text in warned(versions=install)
    ]
    assert "import tf_keras in place of keras" in warned(f"import keras\n{FIT}")[0]


@pytest.mark.parametrize(
    "changed",
    [
        {"versions": {"keras": "2.15.0"}},
        {"versions": {}},
        {"source": f"import tf_keras\n{FIT}"},
        {"source": "import tensorflow\nmodel.fit(x)", "worker": {"count": 1}},
        {"service": {"environment": {"TF_USE_LEGACY_KERAS": "1"}}},
        {"service": {"command": "TF_USE_LEGACY_KERAS=1 python train.py"}},
        {"service": {"command": "python other.py"}},
        {"service": {"job_url": "https://example.com/train.py"}},
        {"service": {"tf_image": "tensorflow/tensorflow:2.15.0"}},
        {"service": {"python": "runtime:no-such-runtime"}},
        {"worker": {"count": 2, "environment": {"TF_USE_LEGACY_KERAS": "True"}}},
    ],
)
def test_nothing_else_is_reported(warned, changed: dict[str, Any]) -> None:
    """Keras 2, other programs, and sources that are elsewhere."""
    assert [] == warned(**changed)


def test_useless_variable_is_reported(warned) -> None:
    """TensorFlow compares it with three values; without tf_keras, it fails."""
    (wrong,) = warned(service={"environment": {"TF_USE_LEGACY_KERAS": "yes"}})
    (missing,) = warned(versions={"keras": "3.15"}, service={"environment": {"TF_USE_LEGACY_KERAS": "1"}})
    (needless,) = warned(versions={"keras": "2.15"}, service={"environment": {"TF_USE_LEGACY_KERAS": "1"}})

    assert wrong.endswith("TensorFlow ignores `yes`; it accepts 1, true, True")
    assert missing.endswith(
        "needs tf_keras, which `" + sys.executable + "` does not have: pip install --no-deps tf_keras"
    )
    assert needless.endswith("does not have: remove it, Keras 2.15 needs no variable")


def test_program_in_a_folder_is_scanned(warned, tmp_path: Path) -> None:
    """A command names it relative to the folder."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "fit.py").write_text(FIT)

    assert warned("", service={"job_url": ".", "command": "cd src; python src/fit.py"})[0].startswith("fit.py:3: Model")


@pytest.mark.parametrize("form", ["folder", "zip", "tar", "file", "none"])
def test_usual_forms_of_programs_are_scanned(warned, tmp_path: Path, form: str) -> None:
    """A module, an archive, and an absolute path without job_url."""
    folder = tmp_path / "src"
    (folder / "pkg").mkdir(parents=True)
    for name, source in {"pkg/main.py": "from pkg import fit", "pkg/fit.py": FIT, "pkg/__init__.py": ""}.items():
        (folder / name).write_text(source)
    url, command, file = "src", "python -u -m pkg.main --epochs 2", "pkg/fit.py"
    if form in ("zip", "tar"):
        url = Path(shutil.make_archive(str(tmp_path / "job"), form, folder)).name
    elif form == "file":
        url, command, file = "src/pkg/fit.py", "python -m fit", "fit.py"
    elif form == "none":
        url, command, file = "", f"python {folder}/pkg/fit.py", "fit.py"

    assert [f"{file}:3"] == [
        text.partition(": ")[0] for text in warned("", service={"job_url": url, "command": command})
    ]


def test_damaged_archive_is_not_scanned(warned, tmp_path: Path) -> None:
    """The executor reports it."""
    (tmp_path / "job.zip").write_bytes(b"PK\x05\x06" + bytes(18))
    assert [] == warned("", service={"job_url": "job.zip", "command": "python train.py"})
    (tmp_path / "job.tar").write_bytes(b"\0" * 100)
    assert [] == warned("", service={"job_url": "job.tar", "command": "python train.py"})


def test_validate_and_local_run_print_the_notice(
    invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(options_file, "keras_versions", lambda _: KERAS_3)
    (tmp_path / "train.py").write_text(FIT)
    path = tmp_path / "options.json"
    service = {"job_url": "train.py", "command": "python train.py", "tf_image": ""}
    path.write_text(json.dumps({"service": service, "worker": {"count": 1}}))

    validated = invoke("options", "validate", str(path))
    in_json = json.loads(invoke("options", "validate", "--json", str(path))[1])
    load_options(path)

    assert f"notice: {NOTICE}" in validated[2]
    assert "train.py:3" in [notice["path"] for notice in in_json["notices"]]
    assert f"notice: {NOTICE}" in capsys.readouterr().err


@pytest.fixture(scope="module")
def without_tf_keras(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python with this one's packages, except tf_keras."""
    return link_python(tmp_path_factory.mktemp("venv"), without="tf_keras") / "python"


@pytest.mark.usefixtures("real_tensorflow")
def test_missing_keras_2_is_reported(without_tf_keras: Path, tmp_path: Path) -> None:
    """The versions are those of the interpreter, without an import of TensorFlow."""
    (tmp_path / "train.py").write_text(TUTORIAL)

    def run_options(*arguments: str) -> subprocess.CompletedProcess[str]:
        own = [str(Path(module.__file__ or "").parents[1]) for module in (tf_scheduler, tf_executor)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(own)}
        command = [str(without_tf_keras), "-m", "tf_scheduler", "options", *arguments]
        return run_program(*command, cwd=tmp_path, env=environment)

    made = run_options("init", "multi_worker_mirrored", "train.py")
    path = tmp_path / "options.json"
    with_variable = run_options("validate", "options.json")
    document = json.loads(path.read_text())
    del document["service"]["environment"]
    path.write_text(json.dumps(document))
    without_variable = run_options("validate", "options.json")

    assert "TF_USE_LEGACY_KERAS=1, because train.py uses Model.fit" in made.stdout, made.stderr
    for text in (made.stderr, with_variable.stderr, without_variable.stderr):
        assert 'pip install --no-deps "tf_keras~=2.' in text
    assert "train.py:9: Model.fit of Keras 3." in without_variable.stderr


@pytest.mark.usefixtures("real_tensorflow")
def test_tutorial_trains_with_new_options(run_process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is unchanged, and nothing is reported."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TUTORIAL)
    assert 0 == run_process("options", "init", "multi_worker_mirrored", "train.py")[0]

    code, out, error = run_process("local", "run", "options.json", "--json")

    assert (0, "succeeded") == (code, json.loads(out)["state"]), error
    assert "notice: train.py" not in error


ALONE = (
    "service.strategy: {}, but the program has no {}, so that each task may train a model of its own; add `{}`"
).format
MIRRORED = ALONE("multi_worker_mirrored", "MultiWorkerMirroredStrategy", "tf.distribute.MultiWorkerMirroredStrategy()")
DDP = ALONE("pytorch_ddp", "init_process_group", 'torch.distributed.init_process_group("gloo")')


def sets(line: int, name: str, setter: str, verb: str = "sets") -> str:
    return f"train.py:{line}: {verb} {name}, which {setter} sets for each task; remove this line"


@pytest.mark.parametrize(
    ("strategy", "source", "expected"),
    [
        ("multi_worker_mirrored", "import tensorflow as tf\n", [MIRRORED]),
        ("multi_worker_mirrored", "import lib\n", []),
        ("pytorch_ddp", "import torch\n", [DDP]),
        ("pytorch_ddp", "import lightning\n", []),
        ("independent", "import os\nos.environ['RANK'] = '0'\n", []),
        ("between_graph", "tf.estimator.train_and_evaluate(x)\n", []),
        (
            "independent",
            "p.add_argument('-d', '--data', required=True)\np.add_argument('name', required=True)\n"
            "p.add_argument('--out', required=False)\n",
            ["train.py:1: the program requires -d, --data, and the command lacks it"],
        ),
        (
            "pytorch_ddp",
            "import os\nfrom torch.distributed import init_process_group\nos.environ['MASTER_ADDR'] = 'x'\n"
            "if 'RANK' not in os.environ:\n    os.environ['RANK'] = '0'\nos.environ.setdefault('WORLD_SIZE', '1')\n"
            "os.environ.update({'MASTER_PORT': '1'}, TF_CONFIG='{}', LR='1')\n"
            "os.environ.pop('RANK', None)\nenviron.pop('WORLD_SIZE')\ndel os.environ['LOCAL_RANK']\n"
            "os.unsetenv('TASK_INDEX')\nos.putenv('JOB_NAME', 'a')\ndata.pop('MASTER_PORT')\n",
            [
                sets(3, "MASTER_ADDR", "strategy pytorch_ddp"),
                sets(7, "TF_CONFIG", "the scheduler"),
                sets(7, "MASTER_PORT", "strategy pytorch_ddp"),
                sets(8, "RANK", "strategy pytorch_ddp", "removes"),
                sets(9, "WORLD_SIZE", "strategy pytorch_ddp", "removes"),
                sets(10, "LOCAL_RANK", "strategy pytorch_ddp", "removes"),
                sets(11, "TASK_INDEX", "the scheduler", "removes"),
                sets(12, "JOB_NAME", "the scheduler"),
            ],
        ),
    ],
)
def test_programs_that_may_train_alone_are_reported(
    warned, tmp_path: Path, strategy: str, source: str, expected: list[str]
) -> None:
    """Two workers would train two models, and the job would succeed."""
    (tmp_path / "lib.py").write_text("s = tf.distribute.MultiWorkerMirroredStrategy()\n")
    service = {"strategy": strategy, "job_url": str(tmp_path)}
    counts = {"parameter_server": {"count": 1}} if strategy == "between_graph" else {}
    assert expected == warned(source, service=service, **counts)
