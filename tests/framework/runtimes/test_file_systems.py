"""The table of TensorFlow's file systems in jobs.md, on real versions."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kit.commands import run_program
from own_runtimes import need_tensorflow_1, python_of, python_with_tensorflow

pytestmark = pytest.mark.usefixtures("real_versions")

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "jobs.md"
VERSIONS = ("1.15", "2.12", "2.15", "2.20", "2.21")
SCHEMES = ("abfs", "file", "gs", "hdfs", "http", "ram", "s3")
#: TensorFlow 1.15 has no list. Without a name, no file system asks a server.
PROGRAM = f"""
import json, tensorflow as tf
def is_known(scheme):
    try:
        tf.io.gfile.exists(scheme + "://")
    except tf.errors.UnimplementedError:
        return False
    except tf.errors.InvalidArgumentError:
        pass
    return True
print(json.dumps([scheme for scheme in {SCHEMES} if is_known(scheme)]))
"""


def documented() -> dict[str, list[str]]:
    """Version -> its own schemes, according to the page."""
    rows = re.findall(
        r"^\| [^|]*2\.\d+[^|]* \| (`file`[^|]*) \| [^|]*\| ([\d., ]+) \|$", PAGE.read_text(), re.MULTILINE
    )
    return {version: re.findall(r"`(\w+)`", schemes) for schemes, tested in rows for version in tested.split(", ")}


def test_table_names_all_tested_versions() -> None:
    """So that no row can be left out of the comparison."""
    assert set(VERSIONS) == documented().keys()


@pytest.mark.parametrize("version", VERSIONS)
def test_tensorflow_has_documented_file_systems(version: str) -> None:
    """A job with another one fails at its first checkpoint."""
    if version == "1.15":
        need_tensorflow_1()
    python = python_of("test-1.15") if version == "1.15" else python_with_tensorflow(version)

    result = run_program(python, "-c", PROGRAM, check=True)

    assert documented()[version] == json.loads(result.stdout)
