"""Type the commands of docs/tutorials/on-a-cluster.md that need no cluster."""

from __future__ import annotations

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from kit.commands import run_program

PAGE = Path(__file__).parents[3] / "docs" / "tutorials" / "on-a-cluster.md"
_SHELL = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_JSON = re.compile(r"^```json\n(.*?)^```$", re.DOTALL | re.MULTILINE)
#: Needs a master or a service.
_ONLINE = tuple(f"build/bin/dcos-tensorflow {name} " for name in ("doctor", "history", "--name"))


@pytest.mark.timeout(300)
def test_page_makes_package_options_and_app(tmp_path: Path) -> None:
    """An operator copies the commands, and both options files."""
    text = PAGE.read_text()
    commands = [line for block in _SHELL.findall(text) for line in block.splitlines()]
    dcos, more = (json.loads(block) for block in _JSON.findall(text))
    (tmp_path / "build" / "bin").mkdir(parents=True)
    program = tmp_path / "build" / "bin" / "dcos-tensorflow"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tf_scheduler "$@"\n')
    program.chmod(0o755)
    (tmp_path / "train.py").write_text("strategy = tf.distribute.MultiWorkerMirroredStrategy()\nmodel.fit(data)\n")

    outputs = {}
    typed = [line for line in commands if line.startswith("build/bin/dcos-tensorflow") and not line.startswith(_ONLINE)]
    for line in typed:
        done = run_program("bash", "-c", line, cwd=tmp_path, timeout=240)
        assert 0 == done.returncode, f"{line}\n{done.stderr}"
        outputs[line.split()[1:3][-1]] = done.stdout
        if "options init" in line:
            made = json.loads((tmp_path / "mnist.json").read_text())
            # The page changes values, and loses none.
            assert made.keys() == dcos.keys()
            assert made["service"].keys() < dcos["service"].keys()
            if find_spec("tensorflow"):  # else the Keras of the tasks is unknown
                assert made["service"]["environment"] == dcos["service"]["environment"]
            (tmp_path / "mnist.json").write_text(json.dumps({**dcos, **more}))

    assert ["build", "init", "validate", "render"] == list(outputs)
    assert "mnist.json is valid" in outputs["validate"]
    assert (tmp_path / "universe-out" / "universe-v5.json").is_file()
    app = json.loads((tmp_path / "app.json").read_text())
    assert "mnist" == app["id"].strip("/")
    assert "SERVICE_KEEP_FILES" not in app["env"]
    assert "https://files.example.com/dcos-tensorflow/0.1.0/" in app["fetch"][0]["uri"]
