"""What a result depends on is read from the interpreters and files that there are."""

import platform
import sys

from tf_scheduler.history.compare import describe_environment


def test_versions_and_digests_are_found(tmp_path):
    """Of each interpreter once; one that does not answer tells nothing; the same file has the same digest."""
    job = tmp_path / "train.py"
    job.write_text("print()")

    found = describe_environment("1", "2", [sys.executable, "/no/python", sys.executable], [job])

    assert ("1", "2", platform.python_version()) == (found["dcos-tensorflow"], found["mesos"], found["python"])
    assert not [name for name in found if "/no/python" in name]
    digest = found[f"sha256 of {job}"]
    job.write_text("print(1)")
    assert digest != describe_environment("1", "2", [], [job])[f"sha256 of {job}"]
