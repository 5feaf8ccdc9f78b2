"""Run recipes of docs/how-to.md on a real Mesos."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.mesos, pytest.mark.tensorflow, pytest.mark.timeout(600)]

PAGE = Path(__file__).parents[2] / "docs" / "how-to.md"
#: Nothing listens on port 9, so that a download fails.
PROGRAM = """\
import sys
import keras, tf_keras
for library in keras, tf_keras:
    path = library.utils.get_file("mnist.npz", origin="http://127.0.0.1:9/mnist.npz", file_hash=sys.argv[1])
    print(library.__name__, path, flush=True)
"""


@pytest.mark.parametrize("recipe", ["data", "home"])
def test_keras_finds_its_data_without_download(tmp_path: Path, train_on_mesos: Callable[..., Any], recipe: str) -> None:
    """Both recipes: a link to a fetched file, and another home folder."""
    data = tmp_path / "mnist.npz"
    data.write_bytes(b"any content")
    digest = hashlib.sha256(data.read_bytes()).hexdigest()
    (tmp_path / "load.py").write_text(PROGRAM)
    text = PAGE.read_text()
    (block,) = re.findall(r"```json\n((?:(?!```).)*\.keras/datasets.*?)```", text, re.DOTALL)
    service: dict[str, Any] = {"strategy": "independent", "job_url": "load.py", "command": f"python load.py {digest}"}
    worker = {"count": 1, "cpus": 0.5, "mem": 1024, "disk": 0}
    if recipe == "data":
        service["data"] = data.as_uri()
        worker |= json.loads(block)["worker"]
    else:
        (variable,) = re.findall(r'`"environment": (\[.*?\])`', text)
        home = tmp_path / "home"
        (home / ".keras" / "datasets").mkdir(parents=True)
        (home / ".keras" / "datasets" / "mnist.npz").write_bytes(data.read_bytes())
        service["environment"] = [{**entry, "value": str(home)} for entry in json.loads(variable)]
    options = tmp_path / "options.json"
    options.write_text(json.dumps({"service": service, "parameter_server": {"count": 0}, "worker": worker}))

    output = train_on_mesos(options).output("worker-0")

    assert re.search(r"^keras \S+/\.keras/datasets/mnist\.npz$", output, re.MULTILINE)
    assert re.search(r"^tf_keras \S+/\.keras/datasets/mnist\.npz$", output, re.MULTILINE)
