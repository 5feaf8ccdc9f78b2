"""`convert --local`: published job files run on this machine without an edit."""

from __future__ import annotations

import json
import os
import pty
import shutil
import sys
from pathlib import Path

import pytest

from kit.commands import command_line, run_program
from own_runtimes import need_torch

TFJOB = """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: dist-mnist-for-e2e-test}
spec:
  runPolicy: {cleanPodPolicy: None}
  tfReplicaSpecs:
    PS:
      replicas: 1
      restartPolicy: Never
      template: {spec: {containers: [{name: tensorflow, image: "kubeflow/tf-dist-mnist-test:1.0"}]}}
    Worker:
      replicas: 2
      restartPolicy: Never
      template:
        spec:
          containers:
          - name: tensorflow
            image: kubeflow/tf-dist-mnist-test:1.0
            resources: {limits: {nvidia.com/gpu: 1, memory: 64Gi}, requests: {cpu: 16}}
"""
PYTORCHJOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: pytorch-dist-mnist-gloo}
spec:
  pytorchReplicaSpecs:
    Master: &replica
      replicas: 1
      restartPolicy: OnFailure
      template:
        spec:
          containers:
          - name: pytorch
            image: gcr.io/example/pytorch-mnist:latest
            command: [torchrun, /opt/mnist/src/mnist.py, "--epochs=1"]
            resources: {limits: {nvidia.com/gpu: 1}}
    Worker: *replica
"""
TONY = """<configuration>
  <property><name>tony.application.name</name><value>mnist</value></property>
  <property><name>tony.ps.instances</name><value>1</value></property>
  <property><name>tony.worker.instances</name><value>2</value></property>
  <property><name>tony.worker.memory</name><value>40g</value></property>
  <property><name>tony.docker.enabled</name><value>true</value></property>
  <property><name>tony.docker.containers.image</name><value>tensorflow/tensorflow:2.4.1</value></property>
  <property><name>tony.containers.command</name><value>/opt/venv/bin/python3 src/mnist.py --steps 5</value></property>
</configuration>
"""
#: Trains as the published programs start to: servers that join, and workers that end.
TENSORFLOW = """
import json, os
import tensorflow.compat.v1 as tf
config = json.loads(os.environ["TF_CONFIG"])
job, index = config["task"]["type"], config["task"]["index"]
server = tf.train.Server(tf.train.ClusterSpec(config["cluster"]), job_name=job, task_index=index)
print(job, index, flush=True)
if job == "ps":
    server.join()
"""
TORCH = """
import torch
from torch import distributed
distributed.init_process_group("gloo")
total = torch.ones(())
distributed.all_reduce(total)
assert total.item() == 2, total
distributed.destroy_process_group()
"""


@pytest.mark.usefixtures("real_tensorflow")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("file", "content", "program", "path", "arguments"),
    [
        ("tfjob.yaml", TFJOB, TENSORFLOW, "mnist.py", ()),
        ("pytorchjob.yaml", PYTORCHJOB, TORCH, "code", ()),
        ("tony.xml", TONY, TENSORFLOW, "code", ("--python", sys.executable)),
    ],
)
def test_converted_file_runs_without_an_edit(
    run_process, tmp_path: Path, file: str, content: str, program: str, path: str, arguments: tuple[str, ...]
) -> None:
    """With any program, or its folder, for the one in the image, and exit code 0."""
    if program is TORCH:
        need_torch()
    (tmp_path / file).write_text(content)
    (tmp_path / "code" / "src").mkdir(parents=True)
    for source in ("mnist.py", "code/src/mnist.py", "code/other.py"):
        (tmp_path / source).write_text(program if "mnist" in source else "")
    target = tmp_path / "options.json"

    code, out, err = run_process(
        "convert", tmp_path / file, "--local", "--program", tmp_path / path, *arguments, "-o", target
    )
    assert 0 == code, err
    assert f"next: dcos-tensorflow local run {target}" == out.splitlines()[-1]
    assert "reduced to fit this machine" in err or program is TORCH
    assert "keeps its default" not in err
    done = run_process("local", "run", target)

    assert 0 == done[0], done[1] + done[2]


def test_missing_program_is_named(invoke, tmp_path: Path) -> None:
    """Without a terminal nothing is written; a missing command is the same question."""
    for file, content, what in (
        ("a.yaml", TFJOB, "names no program"),
        ("b.yaml", PYTORCHJOB, "/opt/mnist/src/mnist.py"),
    ):
        (tmp_path / file).write_text(content)

        code, out, err = invoke("convert", tmp_path / file, "--local", "-o", tmp_path / "options.json")

        assert (1, "") == (code, out)
        assert what in err
        assert "--program PATH" in err
    assert not (tmp_path / "options.json").exists()


def test_archive_without_the_named_program_is_rejected(invoke, tmp_path: Path) -> None:
    """Instead of a job that fails later; commands name the program's path there."""
    (tmp_path / "job.yaml").write_text(PYTORCHJOB)
    for folder, code in (("src", 0), ("nothing", 1)):
        (tmp_path / folder / folder).mkdir(parents=True)
        (tmp_path / folder / folder / ("mnist.py" if folder != "nothing" else "train.py")).write_text("")
        (tmp_path / folder / "helper.py").write_text("")
        pack = shutil.make_archive(str(tmp_path / folder), "gztar" if folder == "src" else "zip", tmp_path / folder)

        done = invoke("convert", tmp_path / "job.yaml", "--local", "--program", pack, "-o", tmp_path / f"{folder}.json")

        assert code == done[0], done[2]
    assert "/opt/mnist/src/mnist.py: only in the image" in done[2]
    options = json.loads((tmp_path / "src.json").read_text())
    assert ("src.tar.gz", "torchrun src/mnist.py --epochs=1") == (
        options["service"]["job_url"],
        options["chief"]["command"],
    )


@pytest.mark.parametrize(
    ("job", "answers", "expected"),
    [
        (PYTORCHJOB, "mnist.py\n", ("mnist.py", "torchrun mnist.py --epochs=1")),
        (TFJOB, "code\nother.py\nsrc/mnist.py\n", ("code", "python src/mnist.py")),
    ],
)
def test_terminal_asks_for_the_program(tmp_path: Path, job: str, answers: str, expected: tuple[str, str]) -> None:
    """For the file of a folder, too; another answer is asked again."""
    (tmp_path / "job.yaml").write_text(job)
    (tmp_path / "code" / "src").mkdir(parents=True)
    for name in ("mnist.py", "code/src/mnist.py", "code/lib.py"):
        (tmp_path / name).write_text("")
    command = command_line("convert", "job.yaml", "--local", "--python", "x")
    master, slave = pty.openpty()
    try:
        os.write(master, answers.encode())
        done = run_program(*command, stdin=slave, cwd=tmp_path, timeout=60)
    finally:
        os.close(master)
        os.close(slave)

    assert 0 == done.returncode, done.stderr
    options = json.loads((tmp_path / "options.json").read_text())
    command = options.get("chief", options["worker"])["command"]
    assert expected == (options["service"]["job_url"], command)


def test_folder_with_several_programs_lists_them(invoke, tmp_path: Path) -> None:
    """Without a terminal; the command chooses one."""
    (tmp_path / "job.yaml").write_text(TFJOB)
    (tmp_path / "code").mkdir()
    for name in ("train.py", "lib.py", "notes.txt"):
        (tmp_path / "code" / name).write_text("")
    words = ("convert", tmp_path / "job.yaml", "--local", "--program", tmp_path / "code", "-o", tmp_path / "o.json")

    code, _, err = invoke(*words)
    chosen = invoke(*words, "--command", "python train.py")

    assert 1 == code
    assert err.endswith("code: lib.py, train.py; choose one with --command 'python FILE'\n"), err
    assert 0 == chosen[0], chosen[2]


#: A program in two files: the strategy is in the module.
STRATEGY = "import tensorflow as tf\ndef strategy():\n    return tf.distribute.MultiWorkerMirroredStrategy()\n"
FIT = "from lib.model import strategy\nwith strategy().scope():\n    model = make()\nmodel.fit(x)\n"


@pytest.mark.parametrize("form", ["folder", "zip", "gztar"])
def test_program_decides_strategy_and_keras(invoke, tmp_path: Path, form: str) -> None:
    """From all files of a folder or archive; the numbers of tasks do not tell."""
    (tmp_path / "job.yaml").write_text(TFJOB.replace("PS:", "Chief:"))
    (tmp_path / "code" / "lib").mkdir(parents=True)
    (tmp_path / "code" / "train.py").write_text(FIT)
    (tmp_path / "code" / "lib" / "model.py").write_text(STRATEGY)
    code = tmp_path / "code"
    program = code if form == "folder" else shutil.make_archive(str(tmp_path / "packed"), form, code)
    target = tmp_path / "options.json"
    words = ("--program", program, "--command", "python train.py", "-o", target)

    code, _, err = invoke("convert", tmp_path / "job.yaml", "--local", *words)

    assert 0 == code, err
    service = json.loads(target.read_text())["service"]
    assert "multi_worker_mirrored, because the program uses MultiWorkerMirroredStrategy" in err
    assert ("multi_worker_mirrored", {"TF_USE_LEGACY_KERAS": "1"}) == (service["strategy"], dict_of(service))


def dict_of(service):
    return {item["name"]: item["value"] for item in service.get("environment", [])}


@pytest.mark.parametrize(
    ("job", "source", "strategy", "warning"),
    [
        (TFJOB, "tf.distribute.experimental.ParameterServerStrategy(r)", "parameter_server", ""),
        (TFJOB, "tf.train.Server(c)", "between_graph", ""),
        (TFJOB, "print(1)", "between_graph", "between_graph was guessed"),
        (
            TONY.replace("/opt/venv/bin/python3", "torchrun").replace("tony.ps.instances", "tony.chief.instances"),
            *("print(1)", "pytorch_ddp", "a command starts torchrun"),
        ),
        (PYTORCHJOB, "hvd.init()", "pytorch_ddp", "pytorch_ddp, but the program uses hvd.init (horovod)"),
        (PYTORCHJOB.replace("torchrun,", "torchrun, --standalone,"), "", "pytorch_ddp", "--standalone does not wait"),
    ],
)
def test_strategy_of_job_and_program(
    invoke, tmp_path: Path, job: str, source: str, strategy: str, warning: str
) -> None:
    """The job decides first, then torchrun, the program, and the counts."""
    chief = "tfReplicaSpecs:\n    Chief: {replicas: 1, template: {spec: {containers: [{name: tensorflow}]}}}\n"
    (tmp_path / "job").write_text(job.replace("tfReplicaSpecs:\n", chief))
    (tmp_path / "mnist.py").write_text(source)
    target = tmp_path / "options.json"
    words = ("--program", tmp_path / "mnist.py", "--python", sys.executable, "-o", target)

    code, _, err = invoke("convert", tmp_path / "job", "--local", *words)

    assert (0, strategy) == (code, code or json.loads(target.read_text())["service"]["strategy"]), err
    assert warning in err


def test_folder_of_a_program_with_modules_is_packed(invoke, tmp_path: Path) -> None:
    """As by `try`."""
    (tmp_path / "job").write_text(PYTORCHJOB)
    for name, source in (("mnist.py", "import helper"), ("helper.py", "import nosuch")):
        (tmp_path / "code").mkdir(exist_ok=True)
        (tmp_path / "code" / name).write_text(source)
    target = tmp_path / "options.json"
    words = ("--program", tmp_path / "code" / "mnist.py", "--python", sys.executable, "-o", target)

    code, _, err = invoke("convert", tmp_path / "job", "--local", *words)

    assert (0, "code") == (code, code or json.loads(target.read_text())["service"]["job_url"]), err


def test_image_tag_suggests_a_runtime(invoke, tmp_path: Path) -> None:
    """With the command that creates it."""
    (tmp_path / "tony.xml").write_text(TONY)
    (tmp_path / "mnist.py").write_text(TENSORFLOW)

    code, out, err = invoke(
        "convert", tmp_path / "tony.xml", "--local", "--program", tmp_path / "mnist.py", "-o", tmp_path / "o.json"
    )

    assert 0 == code, err
    assert "next: dcos-tensorflow runtime create tf2.4 --tensorflow 2.4 --python 3.8" in out
    assert "runtime:tf2.4" == json.loads((tmp_path / "o.json").read_text())["service"]["python"]


def test_made_up_command_is_noted(invoke, tmp_path: Path) -> None:
    """The entry point of an image may have flags; an own command needs no note."""
    (tmp_path / "job.yaml").write_text(TFJOB)
    (tmp_path / "mnist.py").write_text(TENSORFLOW)
    words = ("convert", tmp_path / "job.yaml", "--local", "--program", tmp_path / "mnist.py", "-o", tmp_path / "o.json")

    _, _, made_up = invoke(*words)
    _, _, own = invoke(*words, "--force", "--command", "python mnist.py --steps 1")

    expected = (
        "no command: using `python mnist.py`; the entry point of the image may add flags: pass them with --command"
    )
    assert (True, False) == (expected in made_up, "no command" in own)
    assert ("none omitted: a local run stops its tasks" in made_up, "another hour" in made_up) == (True, False)


def test_other_libraries_of_a_program_are_named(invoke, tmp_path: Path) -> None:
    """For the runtime; `local run` names others."""
    (tmp_path / "job.yaml").write_text(PYTORCHJOB)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "mnist.py").write_text("import json, torch, torchvision, mxnet\nimport lib\n")
    (tmp_path / "code" / "lib.py").write_text("from tensorboardX import SummaryWriter\nimport nosuch.inner\n")
    words = ("convert", tmp_path / "job.yaml", "--local", "--program", tmp_path / "code", "-o", tmp_path / "o.json")

    _, out, _ = invoke(*words)
    unknown = invoke(*words, "--force", "--python", "runtime:foo")

    name = "torch-tensorboardX-torchvision"
    packages = "--package torch --package numpy --package tensorboardX --package torchvision"
    assert f"next: dcos-tensorflow runtime create {name} {packages}\n" in out
    assert (1, "", True) == (*unknown[:2], "unknown runtime `foo`; valid names: " in unknown[2])
