"""What the example files promise to a reader, without running them."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted(path.parent for path in (Path(__file__).parents[2] / "examples").glob("*/options.json"))


@pytest.fixture(params=EXAMPLES, ids=lambda path: path.name)
def example(request: pytest.FixtureRequest) -> Path:
    """One example folder after the other."""
    path: Path = request.param
    return path


def program(example: Path) -> Path:
    """What the example runs."""
    url: str = json.loads((example / "options.json").read_text())["service"]["job_url"]
    return example / url


def test_there_are_examples() -> None:
    """The tests below look at something."""
    assert {"digits", "between_graph"} <= {path.name for path in EXAMPLES}


def test_training_code_is_plain(example: Path) -> None:
    """Allowed imports: standard library, the framework shown, NumPy, scikit-learn."""
    tree = ast.parse(program(example).read_text())
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    own = {"pytorch_ddp": {"torch"}, "horovod": {"tensorflow", "horovod"}}.get(example.name, {"tensorflow"})
    allowed = {*own, "numpy", "sklearn", *sys.stdlib_module_names}
    assert set() == {module.partition(".")[0] for module in modules} - allowed


def test_training_code_does_not_know_the_cluster_manager(example: Path) -> None:
    """No line of the training code names Mesos, DC/OS or a variable that they set."""
    source = program(example).read_text().lower()
    assert [word for word in ("mesos", "dcos", "dc/os", "marathon") if word in source] == []


def test_options_name_the_program_beside_them(example: Path) -> None:
    """`job_url` is the program in the same folder, and the command runs it."""
    service = json.loads((example / "options.json").read_text())["service"]
    assert (example / service["job_url"]).is_file()
    assert f"{service['command']} ".startswith(f"python {service['job_url']} ")
