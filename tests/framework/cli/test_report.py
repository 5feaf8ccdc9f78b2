"""What a local run tells and keeps of its tasks' output."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from builders import a_spec
from tf_scheduler.api.glance import Overview, TaskRow
from tf_scheduler.cli.folders import RunFolder
from tf_scheduler.cli.follow import Watched
from tf_scheduler.cli.report import report, summary
from tf_scheduler.cli.words import Words
from tf_scheduler.model.secrets import SecretSpec
from tf_scheduler.telling.masks import Masks

WORKER = TaskRow("worker-0", "t", "e", "S", "agent", "a:1", 1, "failed", "exit code 4; stderr: it is ***", False, "")
CHIEF = replace(WORKER, name="chief-0", state="finished", message="")
SEEN = Overview(
    *("digits", "/checkpoints", "f", "deploy", "ERROR", (), (WORKER, CHIEF), {}, False, "chief-0"),
    *("failed", "worker-0 failed", False, "", True),
)


@pytest.mark.parametrize(
    ("source", "jobs", "words"),
    [
        ("file:key", (), (["exit code 4; stderr: it is ***"], [])),
        ("vault:kv/a#key", (), (["exit code 4; stderr: it is ***"], [])),
        ("dcos:key", ("worker",), (["exit code 4; stderr: it is ***"], ["it is of-chief"])),
        ("reference:key", ("ps",), (["it is of-the-job"], ["it is of-chief"])),
        ("env:KEY", (), (["it is ********"], ["it is of-chief"])),
    ],
)
def test_secrets_of_every_source_are_kept_out(tmp_path, source, jobs, words):
    """A value that the command does not know stays with the executor, which masks what it says of the output."""
    (tmp_path / "stderr").write_text("it is of-the-job\n")
    (tmp_path / "stdout").write_text("it is of-chief\n")
    folder, cluster = RunFolder(tmp_path / "run"), SimpleNamespace(sandbox=lambda *_: tmp_path)
    masks = Masks(["of-the-job"] if source == "env:KEY" else [])
    spec = a_spec(secrets=(SecretSpec(source, env="KEY", jobs=frozenset(jobs)),))

    found = report(Watched(SEEN), spec, cluster, folder, 1.0, Words(spec, masks))

    assert words == tuple(task["last_lines"] for task in found["tasks"])
    assert all(f"    | {line}" in summary(found) for lines in words for line in lines)
