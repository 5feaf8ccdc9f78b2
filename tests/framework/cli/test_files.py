"""Options files of local runs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from dcos_command.main import main
from jobs import options as job_options
from tf_scheduler.cli.common.options_file import check_options, load_options
from tf_scheduler.errors import OptionsError


@pytest.mark.parametrize("present", [True, False])
def test_gpu_check_is_off_without_nvidia_smi(present: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Local agents offer GPUs that the machine may lack; options can enable the check."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(
        shutil, "which", lambda name, **_: f"/usr/bin/{name}" if present or name != "nvidia-smi" else None
    )
    jobs = {"gpu_worker": {"count": 1}, "worker": {"count": 1, "gpus": 1, "gpu_check": True}}
    (tmp_path / "options.json").write_text(
        json.dumps({"service": {"command": "true"}, "parameter_server": {"count": 0}, **jobs})
    )
    spec = load_options(tmp_path / "options.json")
    assert {"gpu_worker": present, "worker": True} == {job.group: job.settings.gpu_check for job in spec.jobs}


def test_local_cluster_rejects_container_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its agents would refuse each launch. Jobs without tasks are ignored."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    document = {
        "service": {"command": "true", "virtual_network_enabled": True, "gpu_tf_image": "mine"},
        "worker": {"count": 1, "image": "tensorflow/tensorflow"},
        "gpu_worker": {"count": 0},
    }
    (tmp_path / "options.json").write_text(json.dumps(document))

    with pytest.raises(OptionsError) as caught:
        load_options(tmp_path / "options.json")

    paths = ["worker.image", "service.virtual_network_enabled"]
    assert paths == [problem.path for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("host", "path", "expected"),
    [
        ("HERE", "data", ""),
        ("HERE", "HERE/", ""),
        ("HERE", "/data", "volumes.0.container_path: must be a path below the working directory, such as data, or"),
        ("HERE/missing", "data", "volumes.0.host_path: HERE/missing: does not exist on this machine"),
    ],
)
def test_volumes_are_links(tmp_path: Path, host: str, path: str, expected: str) -> None:
    """A cluster's file runs, also with the defaults of the form.

    What no link can do is refused before the run.
    """
    here = str(tmp_path)
    volumes = [{"host_path": host.replace("HERE", here), "container_path": path.replace("HERE", here)}]
    sections = {"worker": {"count": 1}, "executor": {"volumes": "mesos"}, "volumes": volumes}
    document = {"service": {"strategy": "independent", "command": "true"}, **sections}
    with pytest.raises(OptionsError) if expected else nullcontext() as caught:
        assert "link" == check_options(document, tmp_path)["executor"]["volumes"]
    assert (str(caught.value) if caught else "").startswith(expected.replace("HERE", here))


@pytest.mark.parametrize(
    ("service", "worker", "problem"),
    [
        ({"command": "pythn x.py"}, {}, "service.command: pythn: command not found; did you mean `python`?"),
        ({"command": "true"}, {"command": "no-such-program"}, "worker.command: no-such-program: command not found"),
        ({"command": "exec python x.py"}, {}, ""),
        ({"command": "A=1 pythn x.py"}, {}, ""),
        ({"command": "cd / && pythn x.py"}, {}, "service.command: pythn: command not found; did you mean `python`?"),
        ({"command": "train.py"}, {}, "service.command: train.py: command not found; did you mean `python train.py`?"),
        (
            {"command": "torchrn x.py", "strategy": "pytorch_ddp"},
            {},
            "service.command: torchrn: command not found; did you mean `torchrun`?",
        ),
        ({"command": "pythn x.py", "environment": {"PATH": "/box"}}, {}, ""),
        ({"command": "pythn x.py"}, {"pre_command": "install pythn"}, ""),
    ],
)
def test_command_that_no_agent_has_is_refused(tmp_path: Path, service, worker, problem: str) -> None:
    """Before the run; only if the shell cannot find it elsewhere."""
    sections = {"worker": {"count": 1, **worker}, "parameter_server": {"count": 0}}
    document = {"service": {"strategy": "independent", **service}, **sections}
    with pytest.raises(OptionsError) if problem else nullcontext() as caught:
        check_options(document, tmp_path)
    assert problem == (str(caught.value) if caught else "")


@pytest.mark.parametrize(
    ("url", "command", "problem"),
    [
        ("train.py", "python tain.py", "tain.py: not in service.job_url; did you mean `train.py`?"),
        ("train.py", "python src/train.py", "src/train.py: not in service.job_url; did you mean `train.py`?"),
        ("train.py", "./train.sh", "train.sh: not in service.job_url; did you mean `train.py`?"),
        ("code", "python -m trian", "trian.py: not in service.job_url; did you mean `train.py`?"),
        ("code", "python -u -m zz.q", "zz/q.py: not in service.job_url"),
        ("code", "cd src && python train.py", "src: not in service.job_url"),
        ("code", "cd lib && python train.py", "lib/train.py: not in service.job_url; did you mean `train.py`?"),
        ("code", "cd lib && pythn x.py", "pythn: command not found; did you mean `python`?"),
        ("code", "torchrun --nnodes 1 ddp.py", "ddp.py: not in service.job_url"),
        ("code.zip", "python tain.py", "tain.py: not in service.job_url; did you mean `train.py`?"),
        ("train.py", "python /no/train.py", "/no/train.py: does not exist on this machine"),
        ("", "python train.py", "train.py: no file of the job; set service.job_url to the program"),
        ("train.py", "python train.py --to out", ""),
        ("train.py", "python3.11 -u ./train.py", ""),
        ("train.py", "python -m train", ""),
        ("code", "python -m json.tool", ""),
        ("code", "cd lib && python -m mine", ""),
        ("code", "python lib", ""),
        ("code.zip", "python lib/mine.py", ""),
        ("https://files.example.com/code.zip", "python any.py", ""),
    ],
)
def test_missing_program_of_command_is_named(tmp_path: Path, invoke, url: str, command: str, problem: str) -> None:
    """Before launch, by both commands; files of other machines are unknown."""
    for name in ("train.py", "code/train.py", "code/lib/mine.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    shutil.make_archive(str(tmp_path / "code"), "zip", tmp_path / "code")
    service = {"strategy": "independent", "command": command, "job_url": url}
    (tmp_path / "options.json").write_text(json.dumps({"service": service, "worker": {"count": 1}}))

    with pytest.raises(OptionsError) if problem else nullcontext() as caught:
        load_options(tmp_path / "options.json")
    code, out, _ = invoke("options", "validate", str(tmp_path / "options.json"))

    assert (f"service.command: {problem}" if problem else "") == (str(caught.value) if caught else "")
    assert (bool(problem and url), problem if url else "") == (code == 1, out.strip()[17:] if code else "")


@pytest.mark.parametrize(
    ("source", "options", "missing"),
    [
        ("import nosuch.inner, json", {}, "nosuch"),
        ("import yaml_no\nfrom nosuch import x", {}, "nosuch, yaml_no"),
        ("import lib", {}, "deep"),
        ("from tf_executor import user", {}, ""),
        ("def main():\n    import nosuch", {}, ""),
        ("try:\n    import nosuch, lib\nexcept ImportError:\n    pass", {}, ""),
        ("import sys\nsys.path.append('x')\nimport nosuch", {}, ""),
        ("print 1\nimport nosuch", {}, ""),
        ("import nosuch", {"environment": {"PYTHONPATH": "x"}}, ""),
        ("import nosuch", {"command": "python train.py || true"}, "nosuch"),
        ("import nosuch", {"command": "exec python train.py"}, ""),
    ],
)
def test_missing_module_of_a_program_is_named(tmp_path: Path, invoke, source: str, options, missing: str) -> None:
    """Before launch, by both commands; an optional import is not an error."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(source)
    (tmp_path / "code" / "lib.py").write_text("import deep, train")
    service = {"strategy": "independent", "command": "python train.py", "job_url": "code", **options}
    (tmp_path / "options.json").write_text(json.dumps({"service": service, "worker": {"count": 1}}))

    with pytest.raises(OptionsError) if missing else nullcontext() as caught:
        load_options(tmp_path / "options.json")
    code, out, _ = invoke("options", "validate", str(tmp_path / "options.json"))

    text = f"service.python: train.py imports {missing}, which `{sys.executable}` does not have"
    assert (True, bool(missing)) == (not caught or str(caught.value).startswith(text), code == 1)
    assert not missing or out == f"{text}\n"


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        ("import Crypto, absent", "Crypto, absent, which `{0}` does not have; run `{0} -m pip install pycryptodome`"),
        ("import skimage", "skimage, which `{0}` does not have; run `{0} -m pip install scikit-image`"),
        ("import absent", "absent, which `{0}` does not have"),
        ("import tfmesos", "tfmesos, which `{0}` does not have; docs/how-to/migrate has the changes for programs"),
        (
            "from nosuch.code import x",
            "nosuch, which `{0}` does not have; set service.job_url to {1}, and service.command to "
            "`python -m nosuch.code.train`",
        ),
    ],
)
def test_remedy_of_a_missing_module_is_known(tmp_path: Path, source: str, remedy: str) -> None:
    """A package with the name of a module may be a stranger's."""
    code = tmp_path / "nosuch" / "code"
    code.mkdir(parents=True)
    (code / "train.py").write_text(source)
    (code.parent / "__init__.py").touch()

    with pytest.raises(OptionsError) as caught:
        load_options(job_options(code, "python train.py", {"job_url": "."}))

    expected = remedy.format(sys.executable, tmp_path)
    assert str(caught.value).startswith(f"service.python: train.py imports {expected}")
    assert ("pip" in remedy) is ("pip" in str(caught.value))


def test_interpreter_that_does_not_start_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pyenv has a shim for each version that any of its environments has."""
    (tmp_path / "python3.99").write_text("#!/bin/sh\nexit 127")
    (tmp_path / "python3.99").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    document = {"service": {"strategy": "independent", "command": "python3.99 -m json.tool"}, "worker": {"count": 1}}

    with pytest.raises(OptionsError) as caught:
        check_options(document, tmp_path)
    assert "service.command: python3.99: command not found; did you mean `python`?" == str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        "options validate FILE",
        "options diff FILE FILE",
        "convert FILE",
        "local run FILE",
        "doctor --options FILE",
        "package render --options FILE",
        "scheduler run --options FILE",
        "try FILE",
        "options init independent FILE",
        "convert tony.xml --local --program FILE",
        "package validate --sources FOLDER",
        "package render --digests FILE",
        "local run FILE --agents FILE",
        "local up --agents FILE",
        "local status --dir FOLDER",
        "state import state.db FILE",
        "update start --options FILE",
    ],
)
def test_unreadable_file_is_an_error_not_wrong_usage(
    invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str
) -> None:
    """The same for each command: exit code 1 and one line. Root can read each file."""
    monkeypatch.setenv("DCOS_TENSORFLOW_URL", "https://dcos.example/service/mnist")
    path = tmp_path / "unreadable"
    path.mkdir() if "FOLDER" in words else path.touch()
    access, open_file = os.access, Path.open

    def refuse(self, *mode, **more):
        if self == path:
            raise PermissionError(13, "Permission denied", str(self))
        return open_file(self, *mode, **more)

    monkeypatch.setattr(os, "access", lambda file, *mode, **more: Path(file) != path and access(file, *mode, **more))
    monkeypatch.setattr(Path, "open", refuse)

    code, out, err = invoke(*words.replace("FILE", str(path)).replace("FOLDER", str(path)).split())

    assert (1, f"{path}: Permission denied") == (code, (out + err).splitlines()[-1])


def test_submit_to_dcos_names_an_unreadable_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """As other commands do; no request is sent."""
    file = tmp_path / "missing.json"
    code = main(["submit", str(file)], {"DCOS_URL": "http://127.0.0.1:1", "DCOS_DIR": "/nowhere"})

    assert (1, f"dcos tensorflow: {file}: No such file or directory\n") == (code, capsys.readouterr().err)
