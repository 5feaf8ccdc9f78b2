"""Every command against the real API over a simulated service."""

import json
import os
import re
import time
import urllib.request
import uuid
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from builders import with_fields
from dcos_command.main import main
from dcos_command.output import local_time, render_lines
from dcos_command.plans import show_pod_control
from simulation import send
from simulation.world import play
from tf_executor.contract.reports import Progress
from tf_executor.contract.states import Status, TaskState, Verdict
from tf_scheduler.api.http.server import ApiServer
from tf_scheduler.api.views.configurations import target_id
from tf_scheduler.api.views.plan_messages import find_plan
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.history.database import RunDatabase
from tf_scheduler.history.model import Run
from tf_scheduler.interfaces import FileEntry
from tf_scheduler.model.events import ProgressReported
from tf_scheduler.model.state import Configuration, JournalEntry, Result
from tf_scheduler.model.task import AbandonedLaunch

#: Command -> what it asks.
READ = {
    "plan list": "v1/plans",
    "plans show deploy": "v1/plans/deploy",
    "pod list": "v1/pod",
    "pod status": "v1/pod/status",
    "pods status worker-0": "v1/pod/worker-0/status",
    "pod info ps-0": "v1/pod/ps-0/info",
    "endpoints": "v1/endpoints",
    "endpoint worker": "v1/endpoints/worker",
    "tasks": "v1/tasks",
    "why": "v1/pending",
    "cluster": "v1/tf/cluster",
    "progress": "v1/tf/progress?points=60",
    "result": "v1/tf/result",
    "events": "v1/events?limit=50",
    "health": "v1/health?verbose=true",
    "config list": "v1/configurations",
    "debug config target_id": "v1/configurations/targetId",
    "config target": "v1/configurations/target",
    "debug state framework_id": "v1/state/frameworkId",
    "state properties": "v1/state/properties",
    "state property ps-0:task-status": "v1/state/properties/ps-0:task-status",
    "debug offers": "v2/debug/offers",
}
ALL = ["ps-0", "worker-0", "worker-1", "chief-0"]


def status_of(api, plan="deploy"):
    return find_plan(api.world.state, plan).status


def test_plan_status_is_a_tree_with_reasons(ask, api) -> None:
    """The SDK's layout, with reasons added."""
    api.register()
    play(api.world, send.offers())

    lines = ask("plan", "status", "deploy").lines

    assert "deploy (parallel strategy) (STARTING)" == lines[0]
    assert "├─ ps (parallel strategy) (STARTING)" == lines[1]
    assert lines[2].startswith("│  └─ ps-0 (STARTING)")
    assert lines[-1].startswith("   └─ chief-0 (STARTING)")


def test_plan_status_without_name_lists_all_plans(ask, api) -> None:
    api.deploy()

    heading, first, *_ = ask("plan", "show").lines

    assert ["plan", "status", "steps", "strategy", "errors"] == heading.split()
    assert ["deploy", "COMPLETE", "4", "of", "4", "parallel"] == first.split()


def test_json_is_the_unchanged_answer_of_the_api(ask, api) -> None:
    """Without --json the same commands print text."""
    api.deploy()

    for words, path in READ.items():
        with urllib.request.urlopen(f"{api.url}/{path}") as answer:
            expected = json.load(answer)
        assert expected == json.loads(ask(*words.split(), "--json").out), words
        assert ask(*words.split()).out, words


def test_tasks_shows_name_state_and_address(ask, api) -> None:
    api.deploy()

    heading, *rows = ask("tasks").lines

    assert ["task", "status", "agent", "address"] == heading.split()[:4]
    assert ALL == [row.split()[0] for row in rows]
    assert {"RUNNING"} == {row.split()[1] for row in rows}
    assert api.world.state.stored.tasks["ps-0"].address in rows[0]


def test_tasks_shows_launches_that_may_still_run(ask, api) -> None:
    api.deploy()
    world = api.world
    launch = AbandonedLaunch("ps-0__0", "a-2", "agent-2", 5.0)
    world.state = apply(world.state, launch)

    assert "ps-0 may still run on agent-2" == ask("tasks").lines[-1]


def test_why_shows_reasons_of_pending_tasks(ask, api) -> None:
    """Also that a task is not pending."""
    api.register()

    assert any(line.startswith("worker-0 is PENDING in plan deploy") for line in ask("why").lines)
    assert ask("why", "chief-0").lines[0].startswith("chief-0 is PENDING")
    play(api.world, send.offers(), send.running())
    assert "ps-0 is not pending: it is RUNNING on agent-" in ask("why", "ps-0").out
    assert ["No task is pending."] == ask("why").lines


def test_cluster_shows_tf_config_of_a_task(ask, api) -> None:
    api.deploy()

    config = json.loads(ask("cluster", "worker-1").out)

    assert {"type": "worker", "index": 1} == config["task"]
    assert "generation 1, parameter_server" == ask("cluster").lines[0]


def test_plan_commands_change_the_plan(ask, api) -> None:
    """With the SDK's alternative words."""
    api.register()

    assert ["Received cmd: interrupt"] == ask("plan", "pause", "deploy").lines
    assert Status.WAITING is status_of(api)
    assert "already" in ask("plan", "interrupt", "deploy").out
    assert ["Received cmd: continue"] == ask("plan", "continue", "deploy").lines
    assert 0 == ask("plan", "force", "deploy", "ps", "ps-0").code
    assert Status.COMPLETE is find_plan(api.world.state, "deploy").phases[0].status
    assert 0 == ask("plan", "force-restart", "deploy", "ps").code
    assert Status.PENDING is find_plan(api.world.state, "deploy").phases[0].status
    assert 0 == ask("plan", "stop", "deploy").code
    assert 0 == ask("plan", "start", "deploy", "-p", "EPOCHS=10", "-p", "NOTE=a=b c").code
    assert {"EPOCHS": "10", "NOTE": "a=b c"} == dict(api.world.state.stored.controls["deploy"].parameters)


def test_pod_commands_change_the_pod(ask, api) -> None:
    api.deploy()

    assert ["worker-0 is restarted"] == ask("pod", "restart", "worker-0").lines
    play(api.world, send.offers(), send.running())
    assert "  1 restart: worker-0: restarted by an operator" in ask("status").lines
    assert ["worker-1 is replaced"] == ask("pod", "replace", "worker-1", "--yes").lines
    play(api.world, send.offers(), send.running())
    assert ["worker-0 is paused"] == ask("debug", "pod", "pause", "worker-0", "-t", "worker-0").lines
    assert 1 == len(ask("pod", "pause", "worker-0").lines)
    assert ["worker-0 is resumed"] == ask("pod", "resume", "worker-0").lines
    play(api.world, send.offers(), send.running())
    assert "worker-0" in ask("pod", "resume", "worker-0").lines[0]


@pytest.mark.parametrize(
    ("tasks", "line"),
    [(["a-0"], "a-0 is paused"), (["a-0", "b-0"], "a-0 is paused: a-0, b-0"), ([], "a-0 is paused: no task")],
)
def test_pod_answer_names_other_tasks_only(tasks, line: str) -> None:
    (part,) = show_pod_control({"pod": "a-0", "tasks": tasks}, "is paused")

    assert [line] == list(render_lines(part))


def test_unknown_name_lists_valid_names(ask, api) -> None:
    api.deploy()

    near, far = ask("plan", "status", "deplyo"), ask("pod", "info", "backup")
    phase, step = ask("plan", "pause", "deploy", "wroker"), ask("plan", "restart", "deploy", "ps", "x")

    assert [1] * 4 == [near.code, far.code, phase.code, step.code]
    assert "Did you mean deploy? See: " in near.err
    assert "plan list" in near.err
    assert "Valid names: " in far.err
    assert "worker-1" in far.err
    assert "Did you mean worker?" in phase.err
    rolled = ask("update", "pause", "wroker")
    assert re.search("Did you mean worker[?] See: dcos.tensorflow update status", rolled.err)
    assert 0 == ask("update", "force-restart", "worker").code
    assert "Valid names: ps-0." in step.err
    assert 1 == ask("logs", "nosuch").err.count("ps-0")
    assert "plan status deploy" in step.err
    assert "worker-9" in ask("logs", "worker-9").err


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        ("plan pause deploy wroker", 1, {"status": 404, "code": "not_found"}),
        ("pod replace worker-0", 2, {"code": "wrong_usage"}),
        ("plan rest deploy", 2, {"code": "wrong_usage"}),
        ("logs -f nope", 1, {"status": 404, "code": "not_found"}),
    ],
)
def test_error_with_json_is_a_document(ask, api, words: str, code: int, error) -> None:
    """In the form of the API's errors; also printed as text."""
    api.deploy()

    refused = ask(*words.split(), "--json")

    body = json.loads(refused.out)["error"]
    assert code == refused.code
    assert error == {name: value for name, value in body.items() if name != "message"}
    assert body["message"].splitlines()[0] in refused.err
    if "wroker" in words:
        assert "Did you mean worker?" in body["message"]


def test_progress_is_a_row_per_job(ask, api) -> None:
    """Without a terminal it is printed once."""
    api.deploy()
    record = api.world.state.stored.tasks["chief-0"]
    said = Progress(1, 1000.0, 50, 100, 0.25, 3840, 12.5, 400.0, seconds_left=4.0, metrics={"accuracy": 0.98})
    play(api.world, send.event(ProgressReported(record.id, said)))

    line = next(line for line in ask("progress").lines if line.startswith("chief"))

    assert ["50/100", "12.5", "400", "4", "s", "0.25"] == line.split()[2:8]
    assert "chief: accuracy 0.98" in ask("progress").lines
    (metrics,) = (task["metrics"] for task in ask("progress", "--json").json["tasks"] if task["metrics"])
    assert {"accuracy": 0.98} == metrics


def test_status_shows_the_last_line_of_each_stalled_task(ask, api) -> None:
    """Its last speed is not that of now."""
    api.deploy()
    said = {api.world.state.stored.tasks[name].id: Progress(1, 1000.0, 7, steps_per_second=12.5) for name in ALL[2:]}
    api.world.state = with_fields(api.world.state, progress=said, last_progress=("chief-0", 0.0))
    api.sandboxes.files = {
        "chief-0": {"stdout": b"step 6\nstep 7\n"},
        "worker-0": {"stdout": b"not stalled"},
        "worker-1": {"stdout": b"", "stderr": b"waits for worker-0"},
    }

    lines = ask("status").lines

    assert lines[0].split()[1] == "STALLED"
    shown = ["worker-1 | waits for worker-0", "chief-0 | step 7", "To see where worker-1 is: `stacks worker-1`"]
    start = lines.index(shown[0])
    assert shown == lines[start : start + 3]
    assert not any("steps/s" in line or "not stalled" in line for line in lines)
    assert {"chief-0": "step 7", "worker-1": "waits for worker-0"} == ask("status", "--json").json["stalled"]


def test_logs_shows_the_end_of_a_file(ask, api) -> None:
    api.deploy()
    api.sandboxes.files["worker-0"] = {"stdout": b"step 1\nstep 2", "stderr": b"oops\n", "executor.log": b"x" * 100_000}

    assert "step 1\nstep 2\n" == ask("logs", "worker-0").out
    assert "oops\n" == ask("logs", "worker-0", "--stderr").out
    assert 65_537 == len(ask("logs", "worker-0", "--file=executor.log").out)
    assert "step 1\nstep 2" == ask("logs", "worker-0", "--json").json["data"]


def two_logs(api, now: float = 1000.0) -> None:
    """Two workers that print in turns, as their executors store it."""
    api.deploy()
    api.sandboxes.files["worker-0"] = {
        "stdout": b"a1\na2\n\x1b[31ma3\n",
        "stdout.times": b"0 %.2f\n3 %.2f\n6 %.2f\n" % (now - 900, now - 60, now - 5),
    }
    api.sandboxes.files["worker-1"] = {
        "stdout": b"b1\n 1/9\r 9/9\nb3",
        "stdout.times": b"0 %.2f\n3 %.2f\n" % (now - 800, now - 30),
    }


def test_logs_of_all_tasks_are_merged_by_time(ask, api) -> None:
    """Without colours; of a progress bar its last state."""
    two_logs(api)

    lines = ["worker-0 | a1", "worker-1 | b1", "worker-0 | a2", "worker-1 |  9/9", "worker-1 | b3", "worker-0 | a3"]

    assert lines == ask("logs").lines
    assert lines == ask("logs", "worker-1", "worker-0").lines
    assert ["worker-0 | a2", "worker-1 |  9/9", "worker-1 | b3", "worker-0 | a3"] == ask("logs", "--tail", "2").lines
    assert {"worker-0", "worker-1"} == {log["task"] for log in ask("logs", "--json").json["logs"]}


def test_logs_without_times_are_grouped_by_task(ask, api) -> None:
    """A program that has just started has none."""
    api.deploy()
    api.sandboxes.files = {name: {"stdout": b"1\n2\n"} for name in ("worker-1", "worker-0")}

    assert ["worker-0 | 1", "worker-0 | 2", "worker-1 | 1", "worker-1 | 2"] == ask("logs").lines


@pytest.mark.parametrize(
    "index", [b"\xff\n", b"0 nan\n-1 5.0\n", b"9" * 400 + b" 1.0\n", b"5 9.0\n0 1e9\n3 2.0", b"0 " + b"9" * 400 + b".0"]
)
def test_program_may_write_any_index(ask, api, index: bytes) -> None:
    """The working directory belongs to the program's user."""
    api.deploy()
    for name in ("worker-0", "worker-1"):
        api.sandboxes.files[name] = {"stdout": b"1\n2\n", "stdout.times": index}

    assert {"worker-0 | 1", "worker-0 | 2", "worker-1 | 1", "worker-1 | 2"} == set(ask("logs").lines)


@pytest.mark.parametrize(("since", "shown"), [("45s", "a3"), ("2m", "a2 a3"), ("1h", "a1 a2 a3"), ("1", "")])
def test_logs_since_a_time(ask, api, since: str, shown: str) -> None:
    two_logs(api, time.time())

    output = ask("logs", "worker-0", "--since", since)

    assert shown.split() == [line.replace("\x1b[31m", "") for line in output.lines]


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("count", [0, 1, 2, 2_000, 5_000, 6_000])
def test_tail_may_be_longer_than_one_request(ask, api, count: int, end: bytes) -> None:
    """The log has half a megabyte, a request asks for 64 KiB."""
    api.deploy()
    every = [b"line %d of %s" % (number, 100 * b"x") for number in range(5_000)]
    api.sandboxes.files["worker-0"] = {"stdout": b"\n".join(every) + end}

    shown = ask("logs", "worker-0", "--tail", str(count)).lines

    assert [line.decode() for line in every[len(every) - min(count, 5_000) :]] == shown


def test_followed_logs_of_all_tasks_end_with_them(ask, api) -> None:
    """The end of one task does not end the others."""
    two_logs(api)
    play(api.world, *(send.status(name, TaskState.FINISHED) for name in ("ps-0", "worker-0", "worker-1", "chief-0")))

    output = ask("logs", "-f", "worker-0", "worker-1", "--tail=1")

    assert ["worker-1 | b3", "worker-0 | a3"] == output.lines[:2]
    ended = {f"--- {name} has ended: TASK_FINISHED ---" for name in ("worker-0", "worker-1")}
    assert ended == set(output.lines[2:])


def a_run(folder: Path) -> None:
    """The stored output of a local run, whose second launch of worker-0 succeeded."""
    logs = folder / "dcos-tensorflow" / "runs" / "mnist-1" / "logs"
    for name, text, times in (("worker-0", "again\n", "0 30.00\n"), ("worker-0.1", "first\n", "0 10.00\n")):
        (logs / name).mkdir(parents=True)
        (logs / name / "stdout").write_text(text)
        (logs / name / "stdout.times").write_text(times)
    (logs / "scheduler.log").write_text("x")
    run = Run("mnist-1", "mnist", "succeeded", "", 1000.0, 5.0, str(logs.parent), {}, {}, {})
    RunDatabase(folder / "dcos-tensorflow" / "history.db").save(run)


def test_logs_of_a_past_run(own, tmp_path: Path) -> None:
    a_run(tmp_path)

    assert ["worker-0.1 | first", "worker-0 | again"] == own("logs", "--run", "last").lines
    assert ["again"] == own("logs", "worker-0", "--run", "mnist-1").lines
    assert ["worker-0 | again"] == own("logs", "--run", "last", "--tail", "1").lines[-1:]
    assert [] == own("logs", "--run", "last", "--stderr").lines
    for wrong, why in (("worker-9", "its tasks are worker-0, worker-0.1"), ("../..", "unknown task")):
        refused = own("logs", wrong, "--run", "mnist")
        assert 1 == refused.code
        assert why in refused.err
    refused = own("logs", "worker-0", "--run", "mnist", "--file", "../../../result.json")
    assert (1, "no file ../../../result.json of worker-0 is stored") == (refused.code, refused.err.split("\n")[0])
    assert "unknown run" in own("logs", "--run", "nosuch").err
    assert 2 == own("logs", "--run", "last", "-f").code


BINARY = bytes(range(256)) * 10_000  # more than two requests


@pytest.fixture
def sandbox(api):
    """The files of worker-0."""
    api.deploy()
    files = {"stdout": b"x\n", "model/a.bin": BINARY, "model/empty": b"", "model/below/é ü": b"1"}
    api.sandboxes.files["worker-0"] = files
    return files


@pytest.mark.parametrize("source", ["worker-0:model", "worker-0:./model/"])
def test_folder_is_copied(ask, sandbox, tmp_path: Path, source: str) -> None:
    """Into an existing folder, or to a new one."""
    before = set(tmp_path.iterdir())

    assert [f"{tmp_path}/model: 3 files, 2.6 MB"] == ask("cp", source, str(tmp_path)).lines
    copied = ask("cp", source, str(tmp_path / "new"), "--json").json

    assert {"path": f"{tmp_path}/new", "files": 3, "bytes": 2_560_001, "skipped": []} == copied
    for folder in (tmp_path / "model", tmp_path / "new"):
        files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        assert {"a.bin": BINARY, "empty": b"", "below/é ü": b"1"} == files
    assert {"model", "new"} == {path.name for path in set(tmp_path.iterdir()) - before}


def test_file_is_copied(ask, sandbox, tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    for target, path in (("", "a.bin"), ("copy", "copy"), ("old", "old")):
        assert 0 == ask("cp", "worker-0:model/a.bin", f"{tmp_path}/{target}").code
        assert BINARY == (tmp_path / path).read_bytes()


def test_working_directory_is_copied(ask, sandbox, tmp_path: Path) -> None:
    assert 0 == ask("cp", "worker-0:.", str(tmp_path)).code
    assert {"stdout", "model"} == {path.name for path in (tmp_path / "worker-0").iterdir()}


@pytest.mark.parametrize(
    ("source", "target", "code", "message"),
    [
        ("worker-0", "", 2, "expected TASK:PATH"),
        ("worker-0:/etc/passwd", "", 2, "expected TASK:PATH"),
        ("worker-0:../x", "", 1, "expected a path below the working directory"),
        ("worker-0:nothing", "", 1, "worker-0:nothing: no such file or folder"),
        ("worker-0:no/thing", "", 1, "no folder no"),
        ("worker-9:x", "", 1, "worker-9"),
        ("worker-0:model", "no/folder", 1, "no/folder: No such file or directory"),
        ("worker-0:model", "stdout", 1, "Not a directory"),
    ],
)
def test_failed_copy_leaves_nothing(ask, sandbox, tmp_path: Path, source, target, code, message) -> None:
    (tmp_path / "stdout").write_text("mine")
    before = set(tmp_path.rglob("*"))

    refused = ask("cp", source, f"{tmp_path}/{target}")

    assert (code, True) == (refused.code, message in refused.err), refused.err
    assert before == set(tmp_path.rglob("*"))


def test_interrupted_copy_leaves_nothing(ask, api, sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second file is gone when it is read, another one is shorter."""
    before, listed = set(tmp_path.rglob("*")), api.sandboxes.list

    def grown(*arguments):
        return [FileEntry(entry.name, entry.mode, entry.size + 1) for entry in listed(*arguments)]

    monkeypatch.setattr(api.sandboxes, "list", grown)
    refused = ask("cp", "worker-0:model", str(tmp_path))

    assert 1 == refused.code
    assert "became shorter while it was copied" in refused.err
    assert before == set(tmp_path.rglob("*"))


@pytest.mark.parametrize("name", ["..", "a/b", ".", ""])
def test_copy_stays_in_its_folder(
    ask, api, sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """An agent may list any name."""
    monkeypatch.setattr(api.sandboxes, "list", lambda *_: [FileEntry(name, "-rw-r--r--", 1)])

    refused = ask("cp", "worker-0:.", str(tmp_path / "new"))

    assert (1, True) == (refused.code, "invalid name" in refused.err)
    assert not (tmp_path / "new").exists()


def test_pipes_are_not_copied(ask, api, sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor's pipe for progress is in each working directory."""
    entries = [FileEntry("pipe", "prw-------", 0), FileEntry("stdout", "-rwxr-xr-x", 2)]
    monkeypatch.setattr(api.sandboxes, "list", lambda *_: entries)

    assert 0 == ask("cp", "worker-0:.", str(tmp_path / "new")).code
    assert ["stdout"] == [path.name for path in (tmp_path / "new").iterdir()]
    assert (tmp_path / "new" / "stdout").stat().st_mode & 0o100


def test_dcos_command_has_no_runs(dcos) -> None:
    refused = dcos("logs", "--run", "last")

    assert 2 == refused.code
    assert "only dcos-tensorflow" in refused.err
    assert "--run" not in dcos("logs", "--help").out


def test_followed_log_ends_with_the_task(ask, api) -> None:
    api.deploy()
    api.sandboxes.files["worker-0"] = {"stdout": b"step 1\nstep 2\n"}
    play(api.world, send.status("worker-0", TaskState.FINISHED))

    output = ask("logs", "-f", "worker-0")

    assert ["step 1", "step 2", "--- worker-0 has ended: TASK_FINISHED ---"] == output.lines


def test_events_are_listed_oldest_first(ask, api) -> None:
    api.pages.add(
        *(
            JournalEntry(number, 1000.0 + number, "X", f"thing {number}", f"worker-{number % 2}")
            for number in range(1, 6)
        )
    )

    assert ["thing 4", "thing 5"] == [line.split("  ")[-1].strip() for line in ask("events", "-n", "2").lines[1:]]
    assert 2 == len(ask("events", "--task", "worker-0").lines[1:])


@pytest.mark.parametrize(
    ("code", "body", "expected"),
    [
        (200, {"value": 205, "reasons": ["worker-0 is unreachable"]}, "205  worker-0 is unreachable"),
        (208, {"value": 208, "reasons": ["deploying: delayed by a back-off"]}, "208  deploying: delayed by a back-off"),
        (319, {"value": 319, "reasons": ["nothing can be stored"]}, "319  nothing can be stored"),
        (500, {"value": 500, "reasons": ["refused"]}, "500  refused"),
    ],
)
def test_health_accepts_every_status(capsys: pytest.CaptureFixture[str], code: int, body, expected: str) -> None:
    """Where HTTP allows no body, the status is in the body of another one."""
    routes = [Route("/service/x/v1/health", lambda _: JSONResponse(body, code))]
    with ApiServer(Starlette(routes=routes), "127.0.0.1", 0) as server:
        environment = {"DCOS_URL": f"http://127.0.0.1:{server.port}", "DCOS_DIR": "/nowhere"}

        assert [int(code == 500)] * 2 == [
            main(["--name=x", "health", *words], environment) for words in ((), ("--json",))
        ]

    line, _, document = capsys.readouterr().out.partition("\n")
    assert expected == line
    assert body == json.loads(document)


def test_config_list_shows_changes(own, api) -> None:
    """For programs only the ids."""
    older = {"worker": {"count": 2, "command": "python " + "x" * 60}, "service": {"user": "me"}}
    newer = {"worker": {"count": 3, "command": "python y"}, "ps": {"count": 2}, "chief": {"cpus": 1}}
    ids = [str(uuid.UUID(int=number)) for number in (1, 2)]
    made = [Configuration(ids[at], at, 1000.0 * (at + 1), "t", options) for at, options in enumerate((older, newer))]
    api.world.state = with_fields(api.world.state, configurations={each.id: each for each in made})

    heading, first, second = own("config", "list").lines

    assert ["id", "made", "target", "what", "changed"] == heading.split()
    assert [ids[1], local_time(2000.0), "yes"] == re.split("  +", first)[:3]
    words = f"worker.count: 2 → 3, worker.command: python {'x' * 16}… → python y, ps.count: default → 2, and 2 more"
    assert words in first
    assert [ids[0], local_time(1000.0), "-", "-"] == re.split("  +", second)
    assert [ids[1], ids[0]] == own("config", "list", "--json").json
    assert "dev/digits" == own("config", "show", ids[1]).json["name"]


def test_config_list_compares_with_the_previous_target(own, api) -> None:
    """That one may be newer after a rollback."""
    ids = [str(uuid.UUID(int=number)) for number in (1, 2)]
    up, down = ([{"option": "worker.count", "old": old, "new": new}] for old, new in ((2, 3), (3, 2)))
    made = [Configuration(ids[0], 3, 3.0, "t", {}, down), Configuration(ids[1], 2, 2.0, "t", {"worker": {}}, up)]
    api.world.state = with_fields(api.world.state, configurations={each.id: each for each in made})

    _, first, second = own("config", "list").lines

    assert "worker.count: 3 → 2" == re.split("  +", first)[3]
    assert "worker.count: 2 → 3" == re.split("  +", second)[3]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("events -n 0", 2, "-n"),
        ("events -n 1001", 2, "-n"),
        ("events -n 99999", 2, "-n"),
        ("events -n many", 2, "-n"),
        ("events -t nope", 1, "worker-0"),
        ("logs worker-0 wroker-1", 1, "Did you mean worker-0 or worker-1?"),
        ("logs worker-0 --file stdout --stderr", 2, "--stderr and --file: cannot be combined"),
        ("logs worker-0 --file=executor.log --since=5m", 1, "has not recorded when it wrote executor.log"),
        ("logs worker-0 --since=", 2, "such as 10m"),
        ("logs worker-0 --since=10x", 2, "such as 10m"),
        ("logs worker-0 --since=m", 2, "such as 10m"),
        ("logs worker-0 --since=-5", 2, "such as 10m"),
        ("logs worker-0 --since=٣m", 2, "such as 10m"),
        ("plan start", 2, ""),
        ("plan frobnicate", 2, ""),
        ("plan start deploy -p 1=2", 2, ""),
        ("pod replace worker-0", 2, "--yes"),
        ("pod restart wroker", 1, "Did you mean worker-0 or worker-1? See: "),
    ],
)
def test_refused_command_names_the_reason(ask, api, words: str, code: int, message: str) -> None:
    """And changes nothing."""
    api.deploy()
    api.sandboxes.files["worker-0"] = {"executor.log": b"x\n"}
    before = api.world.state

    refused = ask(*words.split())

    assert (code, True) == (refused.code, message in refused.err), refused.err
    assert before == api.world.state


def test_result_is_one_sentence_and_an_exit_code(ask, api) -> None:
    api.deploy()

    undecided = ask("result")
    assert (5, "no result yet\n") == (undecided.code, undecided.out)
    play(api.world, send.stop("enough"))
    stopped = ask("result")
    assert (4, "stopped: enough\n") == (stopped.code, stopped.out)
    for verdict, code in ((Verdict.SUCCEEDED, 0), (Verdict.FAILED, 1)):
        api.world.state = with_fields(api.world.state, result=Result(verdict, "worker-0 has ended", 9.0))
        assert [code] * 2 == [ask("result", *words).code for words in ((), ("--json",))]


def test_health_of_a_failed_job_is_a_failure(ask, api) -> None:
    """For Marathon it is healthy: a restarted scheduler would not change the result."""
    api.deploy()
    assert 0 == ask("health").code
    api.world.state = with_fields(api.world.state, result=Result(Verdict.FAILED, "worker-0: exit code 1", 9.0))

    health = ask("health")

    assert (1, "200  failed: worker-0: exit code 1\n") == (health.code, health.out)


@pytest.mark.parametrize(("verdict", "code"), [("succeeded", 0), ("failed", 1), ("stopped", 4), ("refused", 1)])
def test_result_of_an_ended_run(own, api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verdict, code) -> None:
    """The newest of the service; without a run no service is known."""
    monkeypatch.delenv("DCOS_TENSORFLOW_URL")
    monkeypatch.setenv("DCOS_DIR", "/nowhere")
    assert 3 == own("result").code
    for at, (service, state) in enumerate((("mnist", "failed"), ("mnist", verdict), ("other", "stopped"))):
        folder = tmp_path / "dcos-tensorflow" / "runs" / f"{service}-{at}"
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps({"service": service, "state": state, "reason": "x"}))
        os.utime(folder, (at, at))

    result = own("result", "--name", "mnist")

    assert (code, f"{'failed' if verdict == 'refused' else verdict}: x\n") == (result.code, result.out)
    assert 4 == own("result").code
    assert 3 == own("result", "--name", "third").code


def test_describe_without_dcos_shows_the_options(own, api) -> None:
    """As with DC/OS; without stored options, the whole target."""
    api.deploy()
    assert "goal" in own("describe").json
    target = target_id(api.world.state)
    options = {"worker": {"count": 2}}
    stored = {target: Configuration(target, 1, 1.0, "t", options)}
    api.world.state = with_fields(api.world.state, configurations=stored)

    assert options == own("describe").json


def test_endpoints_of_this_machine_are_addresses(own, api) -> None:
    """Only DC/OS resolves the names of the SDK; JSON is unchanged."""
    api.deploy()

    assert not any("thisdcos" in line for line in own("endpoints", "worker").lines)
    assert {"address", "dns"} == set(own("endpoints", "worker", "--json").json)
