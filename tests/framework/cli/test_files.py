"""Options files of local runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tf_scheduler.cli.common.options_file import load_options
from tf_scheduler.errors import OptionsError


@pytest.mark.parametrize("present", [True, False])
def test_gpu_check_is_off_without_nvidia_smi(present: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Local agents offer GPUs that the machine may lack; options can enable the check."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if present or name != "nvidia-smi" else None)
    jobs = {"gpu_worker": {"count": 1}, "worker": {"count": 1, "gpus": 1, "gpu_check": True}}
    (tmp_path / "options.json").write_text(
        json.dumps({"service": {"command": "true"}, "parameter_server": {"count": 0}, **jobs})
    )
    spec = load_options(tmp_path / "options.json")
    assert {"gpu_worker": present, "worker": True} == {job.group: job.gpu_check for job in spec.jobs}


def test_local_cluster_rejects_container_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its agents would refuse each launch. Jobs without tasks are ignored."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    document = {
        "service": {"command": "true", "virtual_network_enabled": True, "gpu_tf_image": "mine"},
        "worker": {"count": 1, "image": "tensorflow/tensorflow"},
        "gpu_worker": {"count": 0},
        "volumes": [{"host_path": "/mnt", "container_path": "data"}],
    }
    (tmp_path / "options.json").write_text(json.dumps(document))

    with pytest.raises(OptionsError) as caught:
        load_options(tmp_path / "options.json")

    paths = ["worker.image", "service.virtual_network_enabled", "volumes"]
    assert paths == [problem.path for problem in caught.value.problems]


def test_torchrun_of_separate_models_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before the run, because each task would succeed."""
    service = {"strategy": "independent", "command": "torchrun ddp.py"}
    document = {"service": service, "worker": {"count": 2}, "parameter_server": {"count": 0}}
    (tmp_path / "options.json").write_text(json.dumps(document))

    load_options(tmp_path / "options.json")

    assert "notice: service.command: with strategy independent, torchrun trains" in capsys.readouterr().err
