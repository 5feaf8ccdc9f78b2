"""`try`: a program runs without an options file, and leaves one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dcos_command.command import echo
from own_runtimes import need_torch
from tf_scheduler.cli.commands import attempt as attempt_module
from tf_scheduler.cli.common import options_file
from tf_scheduler.cli.local_run import new_options
from tf_scheduler.options.load import resolve

MIRRORED = "import tensorflow as tf\ntf.distribute.MultiWorkerMirroredStrategy()\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a program, next to the current one."""
    (tmp_path / "mnist").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "mnist"


@pytest.fixture
def attempt(invoke, folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Try a program; return the options of the run, and the error output."""
    runs: list[Path] = []
    monkeypatch.setattr(
        attempt_module, "run", lambda options, about, **_: [runs.append(options), echo(about, err=True)]
    )
    monkeypatch.setattr(new_options, "find_spec", lambda name: name != "torch")
    monkeypatch.setattr(options_file, "keras_versions", lambda _: {"keras": "3.1", "tf_keras": "2.21"})

    def call(source: str, *arguments: str) -> tuple[dict[str, Any], str]:
        (folder / "train.py").write_text(source)
        code, _, error = invoke("try", folder / "train.py", *arguments)
        assert 0 == code, error
        return json.loads(runs[-1].read_text()), error.removesuffix("\n")

    return call


def test_strategy_and_tasks_are_guessed(attempt) -> None:
    """What was chosen is printed with the reason, and the command to repeat it."""
    options, error = attempt(
        f"{MIRRORED}model.fit(x)", "--workers", "3", "--", "--epochs", "2", "--dir", "$CHECKPOINT_DIR"
    )

    assert options == {
        "service": {
            "name": "mnist",
            "strategy": "multi_worker_mirrored",
            "job_url": "../mnist",
            "command": 'python train.py --epochs 2 --dir "${CHECKPOINT_DIR}"',
            "environment": {"TF_USE_LEGACY_KERAS": "1"},
        },
        "worker": {"count": 3, "cpus": 0.5, "mem": 1024},
    }
    assert error == (
        "mnist: multi_worker_mirrored, because train.py uses MultiWorkerMirroredStrategy: 3 workers of 0.5 cpus and "
        "1024 MB; TF_USE_LEGACY_KERAS=1, because train.py uses Model.fit\n"
        "to repeat: dcos-tensorflow local run mnist-try.json\n"
    )


@pytest.mark.parametrize(
    ("source", "arguments", "strategy", "counts"),
    [
        ("", (), "independent", (1, 0)),
        ("", ("--ps", "1", "--workers", "2"), "between_graph", (2, 1)),
        ("tf.train.Server(c)", ("--ps", "2"), "between_graph", (2, 2)),
        (MIRRORED, ("--strategy", "ParameterServerStrategy"), "parameter_server", (2, 1)),
        (MIRRORED, ("--strategy", "between_graph", "--ps", "0"), "between_graph", (2, 0)),
        ("os.environ['DATA_SERVICE_ADDRESS']", (), "independent", (1, 0)),
    ],
)
def test_arguments_replace_the_guess(attempt, source: str, arguments, strategy: str, counts) -> None:
    options, _ = attempt(source, *arguments)

    assert strategy == options["service"]["strategy"]
    assert counts == (options["worker"]["count"], resolve(options)["parameter_server"]["count"])
    assert ("DATA" in source) is ("data_service" in options)


def test_workers_without_a_strategy_are_noticed(attempt) -> None:
    """Each of them succeeds, so that nothing else shows it."""
    _, error = attempt("print(1)", "--workers", "2")

    assert "independent, because train.py uses no distribution strategy" in error
    assert "notice: each worker trains a model of its own" in error


def test_file_of_the_last_attempt_is_replaced(attempt, folder: Path) -> None:
    """Each attempt would leave another file; but an edited file is kept."""
    for arguments in ([], ["--workers", "2"], []):
        attempt("", *arguments)
    assert ["mnist-try.json"] == [path.name for path in Path().iterdir()]

    Path("mnist-try.json").write_text("edited")
    for arguments in ([], ["--workers", "2"]):
        attempt("", *arguments)

    assert "edited" == Path("mnist-try.json").read_text()
    assert ["mnist-try-2.json", "mnist-try.json"] == sorted(path.name for path in Path().iterdir())


@pytest.mark.parametrize(
    ("source", "arguments", "command", "words"),
    [
        ("", ("--ckpt", "x", "-lr=1"), " --ckpt x -lr=1", "; train.py gets `--ckpt x -lr=1`"),
        ("", ("--strateg", "x"), " --strateg x", "(did you mean --strategy of `try`, instead of --strateg?)"),
        ("'strateg'", ("--strateg", "x"), " --strateg x", "; train.py gets `--strateg x`"),
        ("'--workers'", ("--workers", "2"), "", "; --workers is an option of `try`: write it after `--` for train.py"),
        ("'--workers'", ("--", "--workers", "2"), " --workers 2", ""),
        ("", ("-m", "a", "--", "-h", "--json"), " -m a -h --json", "; train.py gets `-m a -h --json`"),
    ],
)
def test_unknown_options_go_to_the_program(attempt, source: str, arguments, command: str, words: str) -> None:
    """As `python` does; the line about what is packed says which."""
    options, error = attempt(source, *arguments)

    assert f"python train.py{command}" == options["service"]["command"]
    assert error.endswith(words or "mnist-try.json\n")
    assert ("did you mean" in words) is ("did you mean" in error)


def test_wrong_option_before_the_program_is_refused(invoke, folder: Path) -> None:
    """There it can only be an option of `try`."""
    (folder / "train.py").touch()

    code, _, error = invoke("try", "--worker", "2", folder / "train.py")

    assert (2, True) == (code, "No such option: --worker Did you mean --workers?" in error)


@pytest.mark.parametrize(
    ("argument", "right"),
    [("--dir=/x/y", "--dir={checkpoint_dir}/x/y"), ("", "{checkpoint_dir}"), ("--dir=", "--dir={checkpoint_dir}")],
)
def test_variable_that_the_shell_removed_is_noticed(attempt, argument: str, right: str) -> None:
    """It exists only in tasks; the placeholder needs no quotes of the right kind."""
    assert (
        f"\"$CHECKPOINT_DIR\" is empty in this shell; if you mean it, write '{right}'" in attempt("", "--", argument)[1]
    )

    options, error = attempt("", "--", right, "/tmp/x", "--epochs=3")

    assert "${CHECKPOINT_DIR}" in options["service"]["command"]
    assert "empty in this shell" not in error


def test_missing_library_is_reported(attempt, invoke, folder: Path) -> None:
    """With the command that creates a runtime for it; then `try` can be repeated."""
    attempt("")
    Path("mnist-try.json").unlink()
    (folder / "train.py").write_text("import torch\ntorch.distributed.init_process_group()")

    code, _, error = invoke("try", folder / "train.py")

    assert (1, []) == (code, list(Path().iterdir()))
    assert "dcos-tensorflow runtime create torch --package torch" in error
    assert 1 == error.count("service.python") == error.count("runtime")


@pytest.mark.parametrize(
    ("files", "hint"),
    [
        (("a.py", "train.py"), "`dcos-tensorflow try ../mnist/train.py` or `dcos-tensorflow try ../mnist/a.py`"),
        ((), "the folder has none"),
    ],
)
def test_folder_is_refused_with_its_programs(invoke, folder: Path, files: tuple[str, ...], hint: str) -> None:
    for name in files:
        (folder / name).touch()

    code, _, error = invoke("try", Path("..") / "mnist")

    assert 2 == code
    assert f"../mnist is a folder; try takes a program: {hint}\n" in error


def test_syntax_error_is_reported_before_launch(invoke, folder: Path) -> None:
    """A cluster would start first, only to fail."""
    (folder / "train.py").write_text("import os\n\ndef step(:\n    pass\n")

    code, _, error = invoke("try", folder / "train.py")

    assert (1, []) == (code, list(Path().iterdir()))
    assert f"{folder}/train.py:3: invalid syntax: `def step(:`\n" in error


def test_servers_without_strategy_are_explained(attempt) -> None:
    """`--ps` decides, not the program."""
    assert "mnist: between_graph, because of --ps (train.py names no strategy): " in attempt("", "--ps", "1")[1]


def test_job_that_cannot_fit_writes_no_file(attempt, invoke, folder: Path) -> None:
    """Unless --fit reduces it; the repeated run needs --fit, too."""
    size = ("--set", "worker.cpus=1000")
    (folder / "train.py").touch()

    code, out, error = invoke("try", folder / "train.py", *size, "--json")

    assert (1, "failed", []) == (code, json.loads(out)["error"]["code"], list(Path().iterdir()))
    assert "the job can never fit these agents" in error
    assert "to repeat: dcos-tensorflow local run mnist-try.json --fit\n" in attempt("", *size, "--fit")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.py"], "'none.py' does not exist"),
        (["../mnist/train.py", "--strategy", "mirror"], "unknown strategy `mirror`"),
        (["../mnist/train.py", "--strategy", "horovod", "--ps", "1"], "parameter_server.count: must be 0"),
        (["../mnist/train.py", "--workers", "0"], "--workers"),
    ],
)
def test_nothing_is_written_for_wrong_arguments(invoke, folder: Path, arguments: list[str], message: str) -> None:
    (folder / "train.py").touch()

    code, _, error = invoke("try", *arguments)

    assert code in (1, 2)
    assert message in error
    assert [] == list(Path().iterdir())


def test_settings_are_stored(attempt, invoke, folder: Path) -> None:
    """So that the file repeats the run; nothing is written for wrong ones."""
    options, _ = attempt("", "--set", "worker.mem=64", "--set", "service.environment.LR=0.1")

    assert (64, "0.1") == (options["worker"]["mem"], options["service"]["environment"]["LR"])
    Path("mnist-try.json").unlink()
    code, _, error = invoke("try", folder / "train.py", "--set", "worker.men=64", "--set", "x")
    assert (1, []) == (code, list(Path().iterdir()))
    assert "worker.men: unknown option; did you mean `mem`?" in error
    assert "--set x: expected" in error


@pytest.mark.parametrize(
    ("program", "source", "arguments", "job", "command"),
    [
        ("task.py", "from trainer import model", ("trainer/task.py",), ".", "-m trainer.task"),
        ("task.py", "from . import model", ("trainer/task.py",), ".", "-m trainer.task"),
        ("task.py", "from ..trainer import model", ("trainer/task.py",), "..", "-m here.trainer.task"),
        ("task.py", "import shared, model", ("-m", "trainer.task", "--x=1"), ".", "-m trainer.task --x=1"),
        ("__main__.py", "from .model import x", ("trainer", "--x=1"), ".", "-m trainer --x=1"),
        ("task.py", "import model, json", ("-m", "trainer.task"), "trainer", "task.py"),
        ("task.py", "import unknown", ("trainer/task.py",), "trainer", "task.py"),
    ],
)
def test_package_runs_from_the_folder_of_its_imports(
    invoke, folder: Path, monkeypatch: pytest.MonkeyPatch, program: str, source: str, arguments, job: str, command: str
) -> None:
    """As its author runs it; `python trainer/task.py` would not find them."""
    Path("trainer").mkdir()
    for name in ("trainer/model.py", "shared.py"):
        Path(name).touch()
    Path("trainer", program).write_text(source)
    monkeypatch.setattr(attempt_module, "run", lambda **_: None)
    monkeypatch.setattr(options_file, "missing_modules", lambda *_: [])

    code, _, error = invoke("try", *arguments)

    assert 0 == code, error
    service = json.loads(next(Path().glob("*-try.json")).read_text())["service"]
    assert (job, f"python {command}") == (service["job_url"], service["command"])
    assert ("shared" in source) is ("environment" in service)


@pytest.mark.usefixtures("real_mesos")
def test_module_of_a_package_runs(run_process, folder: Path) -> None:
    """With modules of its own folder, and of a parent."""
    Path("trainer").mkdir()
    Path("trainer/model.py").write_text("value = 1")
    Path("trainer/task.py").write_text("import model\nfrom trainer import model as same\nprint(same.value)")

    code, out, error = run_process("try", "-m", "trainer.task", "--json")

    assert (0, "succeeded") == (code, json.loads(out).get("state")), error + out


@pytest.mark.usefixtures("real_tensorflow")
def test_main_of_the_original_package_is_called(run_process, folder: Path) -> None:
    """Otherwise the file defines a function, trains nothing, and succeeds."""
    (folder / "train.py").write_text("def main(server, log_dir, context):\n    print(server.target, context)\n")

    code, out, error = run_process("try", folder / "train.py", "--workers", "1", "--json")

    assert (0, "succeeded") == (code, json.loads(out)["state"]), error
    assert any("grpc://" in line and "{}" in line for task in json.loads(out)["tasks"] for line in task["last_lines"])


@pytest.mark.parametrize("call", ["main(1, 2, 3)", "if __name__ == '__main__':\n    app.run(main)"])
def test_main_that_is_called_is_a_program(attempt, call: str) -> None:
    options, _ = attempt(f"def main(server, log_dir, context):\n    pass\n{call}\n")

    assert "python train.py" == options["service"]["command"]


@pytest.mark.usefixtures("real_mesos")
def test_program_with_a_package_runs(run_process, folder: Path) -> None:
    """With its arguments; the stored options run again."""
    (folder / "lib.py").write_text("import os, sys\ndef show(): print(os.environ['SHARD_INDEX'], sys.argv[1:])\n")
    (folder / "train.py").write_text("import lib\nlib.show()\n")

    tried = run_process("try", folder / "train.py", "--workers", "2", "--json", "--", "a b", "--x=1")
    again = run_process("local", "run", "mnist-try.json", "--json")

    for code, out, error in (tried, again):
        assert (0, "succeeded") == (code, json.loads(out)["state"]), error
    logs = sorted(Path("../state").glob("dcos-tensorflow/runs/*/logs/worker-*/stdout"))
    assert {"0 ['a b', '--x=1']\n", "1 ['a b', '--x=1']\n"} == {path.read_text() for path in logs}
    assert 4 == len(logs)


NEVER_RESTORES = """
import os, sys, time
model = os.environ["CHECKPOINT_DIR"] + "/model"
if os.path.exists(model):
    print("Epoch 1/1\\nstep 5/100 loss 0.5")
    sys.exit(0)
print("Epoch 1/1\\nstep 80/100 loss 0.1", flush=True)
time.sleep(2)  # the output is read each second
open(model, "w").close()
print("step 90/100 loss 0.1", flush=True)
sys.exit(1)
"""


@pytest.mark.usefixtures("real_mesos")
def test_program_that_never_restores_is_reported(run_process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the restart, in the summary, and with what to do."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(NEVER_RESTORES)
    code, out, error = run_process("try", "train.py", "--workers", "1")
    assert 0 == code, error
    text = "at step 90; the program did not restore its checkpoint of step [89]0, and began again at step 5\n"
    assert re.search(text, out), out
    assert "hint      restarts lost all steps: restore checkpoints" in out


@pytest.mark.usefixtures("real_tensorflow")
@pytest.mark.parametrize(("example", "strategy"), [("digits", "parameter_server"), ("pytorch_ddp", "pytorch_ddp")])
def test_example_trains_without_options(
    run_process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: str, strategy: str
) -> None:
    """Its tasks find each other, and the runtime has what it imports."""
    if example == "pytorch_ddp":
        need_torch()
    monkeypatch.chdir(tmp_path)
    program = Path(__file__).parents[3] / "examples" / example / "train.py"

    code, out, error = run_process("try", program, "--json", "--", "--epochs", "2", "--target", "0")

    assert (0, "succeeded") == (code, json.loads(out)["state"]), error
    assert f": {strategy}, because train.py uses " in error


@pytest.mark.parametrize(("name", "words"), [("train.ipynb", "nbconvert"), ("run.sh", "not a Python program")])
def test_try_refuses_what_python_cannot_run(invoke, tmp_path: Path, name: str, words: str) -> None:
    """A notebook is valid Python in parts, and would train nothing successfully."""
    (tmp_path / name).write_text('{"cells": []}')
    code, _, error = invoke("try", tmp_path / name)
    assert (1, True) == (code, words in error)
