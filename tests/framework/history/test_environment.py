"""Environment of a run: versions of interpreters, digests of files."""

import platform
import re
import sys
from pathlib import Path

from tf_scheduler.history.compare import describe_environment


def test_environment_has_versions_and_digests(tmp_path: Path) -> None:
    """Of each interpreter once. An interpreter that fails has no entry."""
    job = tmp_path / "train.py"
    job.write_text("print()")

    other = tmp_path / "other python"
    other.symlink_to(sys.executable)

    environment = describe_environment("1", "2", [sys.executable, str(other), "/no/python", sys.executable], [job])

    assert ("1", "2", platform.python_version()) == tuple(
        environment[name] for name in ("dcos-tensorflow", "mesos", "python")
    )
    assert platform.python_version() == environment["interpreter_2_python"]
    assert not [name for name in environment if name.startswith("interpreter_3")]
    digest = environment["sha256_train.py"]
    job.write_text("print(1)")
    assert digest != describe_environment("1", "2", [], [job])["sha256_train.py"]
    assert not [name for name in environment if re.search(r"[^\w.-]", name)]
