"""Run recipes of docs/how-to/recipes.md on a real Mesos."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from kit.http_server import HttpServer

pytestmark = [pytest.mark.usefixtures("real_tensorflow"), pytest.mark.timeout(600)]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "recipes.md"
#: Nothing listens on port 9, so that a download fails.
PROGRAM = """\
import sys
import keras, tf_keras
for library in keras, tf_keras:
    path = library.utils.get_file("mnist.npz", origin="http://127.0.0.1:9/mnist.npz", file_hash=sys.argv[1])
    print(library.__name__, path, flush=True)
"""


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """The address of a web server of the test's folder."""
    with HttpServer(partial(SimpleHTTPRequestHandler, directory=str(tmp_path))) as server:
        yield server.url


@pytest.mark.parametrize("recipe", ["data", "web", "home"])
def test_keras_finds_its_data_without_download(
    tmp_path: Path, train_on_mesos: Callable[..., Any], web: str, recipe: str
) -> None:
    """A file at its place, by a path or from the web; and another home folder."""
    data = tmp_path / "mnist.npz"
    data.write_bytes(b"any content")
    digest = hashlib.sha256(data.read_bytes()).hexdigest()
    (tmp_path / "load.py").write_text(PROGRAM)
    text = PAGE.read_text()
    (block,) = re.findall(r"```json\n((?:(?!```).)*\.keras/datasets.*?)```", text, re.DOTALL)
    service: dict[str, Any] = {"strategy": "independent", "job_url": "load.py", "command": f"python load.py {digest}"}
    worker = {"count": 1, "cpus": 0.5, "mem": 1024, "disk": 0}
    if recipe != "home":
        (record,) = json.loads(block)["service"]["data"]
        service["data"] = [{**record, "url": data.name if recipe == "data" else f"{web}/{data.name}"}]
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
