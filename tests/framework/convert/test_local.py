"""Adaptation of converted options to a laptop."""

from __future__ import annotations

from typing import Any

import pytest

from tf_scheduler.convert.local import localize, missing_programs
from tf_scheduler.convert.program import Libraries, needed_libraries
from tf_scheduler.runtimes.catalogue import creation_arguments, torch_creation_arguments


def adapted(options, program="train.py", source="", fits=lambda _: True):
    programs = [program] if program.endswith(".py") else []
    notes, needed = localize(options, programs, program, fits, lambda _: {program: source}, lambda _: False)
    return {note.path: note.message for note in notes}, needed


@pytest.mark.parametrize(
    ("image", "source", "expected"),
    [
        ("tensorflow/tensorflow:1.13.1-py3", "", Libraries(tensorflow=(1, 13))),
        ("tensorflow/tensorflow:2.4.1-gpu", "tf.estimator.Estimator", Libraries(tensorflow=(2, 4))),
        ("", "from tensorflow.examples.tutorials.mnist import input_data", Libraries(tensorflow=(1, 15))),
        ("", "import tensorflow.contrib.slim", Libraries(tensorflow=(1, 15))),
        ("", "import tensorflow as tf\ntf.app.run()", Libraries(tensorflow=(1, 15))),
        ("", "import tensorflow.compat.v1 as tf\ntf.app.run()", Libraries()),
        ("", "tf.estimator.train_and_evaluate()", Libraries(tensorflow=(2, 15))),
        ("nvcr.io/nvidia/tensorflow:20.12-tf2-py3", "", Libraries()),
        ("", "import torch\n", Libraries(torch=True)),
        (
            "pytorch/pytorch:1.13.1-cuda11.6-cudnn8-runtime",
            "import torch",
            Libraries(torch=True, torch_version="1.13.1"),
        ),
    ],
)
def test_newest_suitable_library_is_suggested(image: str, source: str, expected: Libraries) -> None:
    assert expected == needed_libraries([image], source, is_torch=False)


@pytest.mark.parametrize(
    ("series", "own", "expected"),
    [
        ((1, 13), 11, "tf1.15 --tensorflow 1.15 --python 3.7"),
        ((2, 15), 11, "tf2.15 --tensorflow 2.15"),
        (None, 11, "tf2.21 --tensorflow 2.21"),
        ((2, 4), 12, "tf2.4 --tensorflow 2.4 --python 3.8"),
    ],
)
def test_runtime_is_created_with_a_supported_python(series, own: int, expected: str) -> None:
    assert expected == creation_arguments(series, own)[1]


@pytest.mark.parametrize(
    ("version", "own", "expected"),
    [
        ("", 11, "torch --package torch --package numpy"),
        ("1.13.1", 11, 'torch1.13 --package "torch==1.13.1" --package "numpy<2" --python 3.10'),
        ("2.4", 11, 'torch2.4 --package "torch==2.4.*" --package numpy'),
    ],
)
def test_torch_is_created_with_a_supported_python(version: str, own: int, expected: str) -> None:
    assert expected == torch_creation_arguments(version, own)[1]


def test_modules_of_python_and_optional_ones_are_not_needed() -> None:
    """An import in `try` has an alternative."""
    source = "import os, torch\nfrom sklearn import svm\ntry:\n  import cv2\nexcept ImportError:\n  cv2 = None\n"

    needed = needed_libraries([], source, is_torch=False)

    assert ({"torch", "sklearn"}, ("scikit-learn",)) == (set(needed.modules), needed.packages)


@pytest.mark.parametrize(
    ("command", "expected", "note"),
    [
        ("python x.py --backend mpi", "python x.py --backend gloo", "gloo is the backend: nccl needs GPUs"),
        ("python x.py --dist-backend=nccl --n 1", "python x.py --dist-backend=gloo --n 1", "gloo is the backend"),
        (
            "torchrun --rdzv_backend=etcd --rdzv_endpoint=etcd:2379 x.py",
            "torchrun x.py",
            "rendezvous omitted: tasks find each other without an endpoint or etcd: `torchrun x.py`",
        ),
        ("torchrun --rdzv-endpoint pod:1 x.py", "torchrun x.py", "rendezvous omitted"),
        ("torchrun --rdzv_backend=c10d x.py", "torchrun --rdzv_backend=c10d x.py", ""),
        ("x --data=/no/data:/no/more", "x --data=/no/data:/no/more", "/no/data: does not exist on this machine"),
        ("x gs://a/b $(D)/c ./e/f", "x gs://a/b $(D)/c ./e/f", ""),
    ],
)
def test_arguments_of_clusters_are_changed(command: str, expected: str, note: str) -> None:
    """A laptop has neither MPI nor GPUs nor etcd, and not the image's paths."""
    options = {"service": {}, "worker": {"count": 1, "command": command}}

    notes, _ = adapted(options, "")

    assert expected == options["worker"]["command"]
    assert note in notes.get("worker.command", "")
    assert bool(note) is ("worker.command" in notes)


def test_tasks_shrink_until_they_fit() -> None:
    """First the amounts, then the number of workers; smaller amounts stay."""
    options = {"service": {}, "worker": {"count": 9, "cpus": 4, "mem": 100, "command": "x"}}

    notes, _ = adapted(options, fits=lambda changed: changed["worker"]["count"] < 4 and changed["worker"]["cpus"] < 0.2)

    assert {"count": 3, "cpus": 0.1, "mem": 100, "disk": 0, "command": "x"} == options["worker"]
    assert "reduced to fit this machine: count 9 to 3, cpus 4 to 0.1" == notes["worker"]


def test_tasks_keep_the_memory_that_fits() -> None:
    """A program of 1.1 GB would not run in the smallest amount."""
    options = {"service": {}, "worker": {"count": 2, "cpus": 4, "mem": 4096, "command": "x"}}

    adapted(options, fits=lambda changed: changed["worker"]["mem"] <= 3782)

    assert (0.5, 3584) == (options["worker"]["cpus"], options["worker"]["mem"])


def test_options_of_clusters_are_omitted() -> None:
    worker = {"count": 1, "gpus": 2, "image": "i", "placement_constraint": "[]", "command": "x --backend=nccl"}
    options = {"service": {"role": "r", "checkpoint_dir": "hdfs://x"}, "volumes": [1], "gpu_worker": worker}
    options["finish"] = {"clean_up": "none"}

    notes, _ = adapted(options)

    assert {"service": {"job_url": "train.py"}, "finish": {}} == {
        name: value for name, value in options.items() if name != "worker"
    }
    assert {"count", "cpus", "mem", "disk", "command"} == set(options["worker"])
    assert {"volumes", "service.role", "service.checkpoint_dir", "gpu_worker.placement_constraint"} <= set(notes)
    assert "2 omitted: tasks use CPUs only; set it again if this machine has GPUs" == notes["worker.gpus"]
    assert notes["worker.command"].startswith("gloo is the backend: nccl needs GPUs")
    assert "x --backend=gloo" == options["worker"]["command"]


@pytest.mark.parametrize(
    ("command", "program", "expected"),
    [
        ("cd /opt/x && python3.7 /opt/x/main.py --a 1", "train.py", "python train.py --a 1"),
        ("/opt/conda/bin/python a.py b.py", "b.py", "python a.py b.py"),
        ("python /opt/a.py /opt/b.py", "b.py", "python /opt/a.py b.py"),
        ("python -m torch.distributed.run ./a.py", "b.py", "python -m torch.distributed.run b.py"),
        ("torchrun /opt/a.py", "all.zip", "torchrun /opt/a.py"),
        ("nvidia-smi", "train.py", "nvidia-smi"),
    ],
)
def test_command_starts_the_own_program(command: str, program: str, expected: str) -> None:
    options = {"service": {}, "worker": {"count": 1, "command": command}}

    adapted(options, program)

    assert expected == options["worker"]["command"]


def test_programs_of_the_image_are_missing() -> None:
    options = {
        "service": {"command": "python /opt/a.py"},
        "worker": {"count": 1},
        "chief": {"count": 0, "command": "b.py"},
    }

    assert ["/opt/a.py"] == missing_programs(options, lambda _: False)
    assert [] == missing_programs(options, lambda _: True)
    assert [] == missing_programs({**options, "service": {"job_url": "a.zip"}}, lambda _: False)
    packed = {"command": "python /opt/a.py b.py", "job_url": "a.zip"}
    assert ["/opt/a.py"] == missing_programs({**options, "service": packed}, lambda _: False)


@pytest.mark.parametrize(
    ("source", "is_set"), [("model.fit(x)", True), ("import tf_keras\nm.fit(x)", False), ("", False)]
)
def test_keras_2_is_selected_for_model_fit(source: str, is_set: bool) -> None:
    options: dict[str, Any] = {"service": {"strategy": "multi_worker_mirrored"}, "worker": {"count": 2, "command": "x"}}

    adapted(options, source=source)

    assert is_set is ("environment" in options["service"])
