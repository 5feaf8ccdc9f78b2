"""Random job files: `convert` writes valid options, or an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import strategies as st

from kit.fuzzing import BYTES, JSON, as_json, assert_explained, call_main, changed, damaged, fuzz
from kit.options import load_spec

FILES = Path(__file__).parent / "files"
TFJOB = (FILES / "tfjob.yaml").read_bytes()
TONY = (FILES / "tony.xml").read_bytes()
PYTORCH = TFJOB.replace(b"TFJob", b"PyTorchJob").replace(b"tfReplica", b"pytorchReplica").replace(b"Chief", b"Master")


def yaml_changes(text: bytes) -> st.SearchStrategy[bytes]:
    """A YAML file with other entries, as YAML and as JSON."""
    documents = changed(next(yaml.safe_load_all(text)))
    return documents.map(as_json) | documents.map(_as_yaml)


def _as_yaml(document: object) -> bytes:
    # A lone surrogate cannot be written as UTF-8.
    return yaml.safe_dump(json.loads(json.dumps(document).replace("\\ud800", "?"))).encode(errors="replace")


PROPERTIES = ["worker.instances", "ps.memory", "worker.gpus", "application.timeout", "execution.envs", "wonder"]


def a_property(name: str, value: object) -> str:
    return f"<property><name>tony.{name}</name><value>{value}</value></property>"


def xml_changes() -> st.SearchStrategy[bytes]:
    """Further properties with any values, some of which XML cannot contain."""
    rows = st.lists(st.builds(a_property, st.sampled_from(PROPERTIES), JSON), max_size=4).map("".join)
    end = b"</configuration>"
    return rows.map(lambda text: TONY.replace(end, text.encode(errors="replace") + end))


@pytest.mark.parametrize(
    "inputs",
    [
        pytest.param(yaml_changes(TFJOB) | damaged(TFJOB) | BYTES, id="TFJob"),
        pytest.param(yaml_changes(PYTORCH) | damaged(PYTORCH), id="PyTorchJob"),
        pytest.param(xml_changes() | damaged(TONY) | BYTES.map(lambda data: b"<" + data), id="tony.xml"),
    ],
)
def test_fuzz_convert(inputs: st.SearchStrategy[bytes], tmp_path: Path) -> None:
    """The result is a valid options file, and no error is a traceback."""
    file = tmp_path / "job"

    def check(content: bytes) -> None:
        file.write_bytes(content)
        outcome = call_main("convert", file, "--command", "true")
        assert_explained(outcome)
        if outcome.code == 0:
            load_spec(json.loads(outcome.out), {"executor": {"url": "x"}})

    fuzz(check, inputs)
