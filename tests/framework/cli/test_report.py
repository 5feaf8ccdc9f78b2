"""Task output in the report of a local run."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from builders import a_spec
from tf_scheduler.api.views.overview import Overview, TaskRow
from tf_scheduler.cli.common.folders import RunFolder
from tf_scheduler.cli.common.output import OutputRedactor
from tf_scheduler.cli.local_run.follow import FollowResult
from tf_scheduler.cli.local_run.report import build_report, summary_lines
from tf_scheduler.logging_setup import SecretRedactor
from tf_scheduler.model.secrets import SecretSpec

WORKER = TaskRow("worker-0", "t", "e", "S", "agent", "a:1", 1, "failed", "exit code 4; stderr: it is ***", False, "")
CHIEF = replace(WORKER, name="chief-0", state="finished", message="")
SEEN = Overview(
    *("digits", "/checkpoints", "f", "deploy", "ERROR", (), (WORKER, CHIEF), (), 0, {}, False, "chief-0"),
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
def test_report_has_no_secrets_of_any_source(tmp_path: Path, source: str, jobs, words) -> None:
    """Only the executor, which redacts secrets, quotes output of tasks with secrets."""
    (tmp_path / "stderr").write_text("it is of-the-job\n")
    (tmp_path / "stdout").write_text("it is of-chief\n")
    folder = RunFolder(tmp_path / "run")
    cluster = SimpleNamespace(sandbox=lambda *_: tmp_path, sandboxes=lambda _: {})
    masks = SecretRedactor(["of-the-job"] if source == "env:KEY" else [])
    spec = a_spec(secrets=(SecretSpec(source, env="KEY", jobs=frozenset(jobs)),))

    report = build_report(FollowResult(SEEN), spec, cluster, folder, 1.0, OutputRedactor(spec, masks))

    assert words == tuple(task["last_lines"] for task in report["tasks"])
    shown = "\n".join(summary_lines(report))
    assert all(f"-0 | {line}" in shown for lines in words for line in lines)


def test_report_tells_the_most_memory_used(tmp_path: Path) -> None:
    tasks = (replace(WORKER, memory_peak_mb=1003.5, memory_mb=1024.0), replace(CHIEF, memory_mb=1024.0))
    cluster = SimpleNamespace(sandbox=lambda *_: tmp_path, sandboxes=lambda _: {})
    result, folder = FollowResult(replace(SEEN, tasks=tasks)), RunFolder(tmp_path / "run")
    report = build_report(result, a_spec(), cluster, folder, 1.0, OutputRedactor(a_spec(), SecretRedactor([])))

    assert [1003.5, None] == [task["memory_peak_mb"] for task in report["tasks"]]
    assert "  memory    worker-0 0.98 of 1.0 GB at most (not enforced on this machine)" in summary_lines(report)


def test_report_keeps_logs_of_earlier_launches(tmp_path: Path) -> None:
    """Of many launches, the first and the latest ones."""
    launches = {f"worker-0__{number}": tmp_path / str(number) for number in range(1, 14)}
    for id_, sandbox in {**launches, "chief-0__1": tmp_path / "chief"}.items():
        sandbox.mkdir()
        (sandbox / "stdout").write_text(id_)
    cluster = SimpleNamespace(sandbox=lambda *_: tmp_path / "13", sandboxes=lambda _: launches)
    seen = replace(SEEN, tasks=(replace(WORKER, executor_id="worker-0__13"),))
    spec = a_spec()

    report = build_report(
        FollowResult(seen), spec, cluster, RunFolder(tmp_path / "run"), 1.0, OutputRedactor(spec, SecretRedactor([]))
    )

    logs = tmp_path / "run" / "logs"
    assert [str(logs / f"worker-0.{number}") for number in (1, *range(4, 13))] == report["tasks"][0]["earlier_logs"]
    assert "worker-0__1" == (logs / "worker-0.1" / "stdout").read_text()
    assert "worker-0__13" == (logs / "worker-0" / "stdout").read_text()
    assert "  restarted worker-0 (logs of the first launch: worker-0.1)" in summary_lines(report)
    assert f"  logs      {logs}" in summary_lines(report)
