"""`dcos-tensorflow history` and `local run --report`, on a real Mesos."""

import json
import os
import platform
import re
import sys
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from jobs import PATIENCE, options
from kit.commands import SchedulerCommand, request, run_command
from kit.http_server import HttpServer, QuietHandler
from kit.waiting import wait_until
from mesos_local.host import ProcessId
from runs import T0, a_launch, a_point, a_run
from tf_scheduler.cli import start
from tf_scheduler.cli.common.folders import RunFolder
from tf_scheduler.cli.local_run.installed import InstalledService
from tf_scheduler.history.database import RunDatabase, SharedRuns
from tf_scheduler.history.model import to_json
from tf_scheduler.history.record import encode_line
from tf_scheduler.options.load import resolve
from tf_scheduler.options.schema.document import mask_options

#: Worker 0 fails once, then reports progress; the others wait to be killed.
PROGRAM = """\
case "$TASK_NAME" in worker-0) ;; *) exec sleep 1000;; esac
[ -e $CHECKPOINT_DIR/again ] || { echo first; touch $CHECKPOINT_DIR/again; exit 3; }
for step in 1 2 3; do
  echo "{\\"step\\": $step, \\"loss\\": 0.$step, \\"examples\\": $step}" > $TF_EXECUTOR_PROGRESS; sleep 0.7
done
"""


@pytest.fixture
def kept(tmp_path: Path):
    """The history of this test."""
    return RunDatabase(tmp_path / "state" / "dcos-tensorflow" / "history.db")


@pytest.mark.usefixtures("real_mesos")
def test_run_is_stored_drawn_compared_and_reproduced(run_process, tmp_path: Path, kept, succeed) -> None:
    """The history has its restart, its progress, and its options without the secret."""
    secret = {"environment": {"API_TOKEN": "hush-hush"}}
    path = options(tmp_path, PROGRAM, secret, restart={"backoff": 0})

    out = succeed("local", "run", path, "--report", tmp_path / "page.html", "--note", "lr 0.1", "--json")
    (run_record,) = kept.runs()
    assert json.loads(out)["run"].endswith(run_record.id)
    (worker,) = (task for task in json.loads(out)["tasks"] if task["name"] == "worker-0")
    assert [f"{worker['logs']}.1"] == worker["earlier_logs"]
    assert "first" == (Path(worker["earlier_logs"][0]) / "stdout").read_text().strip()
    assert "first" not in (Path(worker["logs"]) / "stdout").read_text()
    first, second = (launch for launch in run_record.launches if launch.task == "worker-0")
    assert ("failed", 3, "finished", 0) == (first.state, first.exit_code, second.state, second.exit_code)
    assert first.launched < first.running <= first.ended <= second.launched < second.running <= second.ended
    assert first.replaced
    assert "lr 0.1" == run_record.note
    assert (1, 3) == (run_record.restarts, run_record.last.step)
    assert run_record.first_step > second.launched - run_record.submitted
    assert {"python", "mesos", "dcos-tensorflow"} <= set(run_record.environment)
    page = (tmp_path / "page.html").read_text()
    assert "2 launches" in page
    assert "Loss" in page

    assert ("between_graph", 1) == (
        run_record.resolved["service"]["strategy"],
        run_record.resolved["parameter_server"]["count"],
    )
    other = {"options": {"service": {"name": "x"}}, "resolved": {}}
    kept.save(replace(run_record, id="another", submitted=run_record.submitted + 1, **other))
    listed = json.loads(run_process("history", "--json")[1])
    assert ["another", run_record.id] == [item["id"] for item in listed]
    detail = run_process("history", "show", run_record.id, "--json")
    assert run_record.id == json.loads(detail[1])["id"]
    compared = json.loads(run_process("history", "compare", run_record.id, "another", "--json")[1])
    assert ["small", "x"] == next(
        [item["old"], item["new"]] for item in compared["options"] if item["name"] == "service.name"
    )
    code, out, err = run_process("history", "reproduce", run_record.id, "-o", tmp_path / "again.json")
    assert 0 == code, err
    assert "warning: service.environment.API_TOKEN: secrets are not stored; add the secret" in err
    again = json.loads((tmp_path / "again.json").read_text())
    (tmp_path / "again.json").write_text(json.dumps({**again, "service": {**again["service"], "environment": []}}))
    assert "succeeded" in succeed("local", "run", tmp_path / "again.json")
    output = "".join((page, json.dumps(listed), detail[1], json.dumps(compared), (tmp_path / "again.json").read_text()))
    assert "hush-hush" not in output
    assert b"hush-hush" not in (tmp_path / "state" / "dcos-tensorflow" / "history.db").read_bytes()


@pytest.mark.usefixtures("real_mesos")
def test_loss_that_became_nan_is_the_last_loss(succeed, tmp_path: Path) -> None:
    """With the step of the first NaN; an older, good loss would look like a result."""
    command = "for step in 1 2 3 4 5 6 7 8; do [ $step -lt 5 ] && loss=0.$step || loss=nan; "
    path = options(tmp_path, f"{command} echo step $step/8 loss $loss; done", {"strategy": "independent"})
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "parameter_server": {"count": 0}}))

    text = succeed("local", "run", path, "--report", tmp_path / "page.html")
    words = "loss nan since step 5"
    assert f"last      step 8 of 8, 100 %, {words}" in text
    assert "<b>nan since step 5</b><span>last loss</span>" in (tmp_path / "page.html").read_text()
    assert " 8      nan since step 5 " in succeed("history")
    result = json.loads(succeed("history", "--json"))[0]
    assert (8, "nan", 5) == (result["last_step"], result["last_loss"], result["loss_nan_since"])
    report = json.loads((next((tmp_path / "state").glob("*/runs/*/result.json"))).read_text())
    assert (5, True) == (report["results"]["loss_nan_since"], words in report["progress"])


#: Maps a file like TensorFlow's library, and trains for a few seconds without a strategy or a message.
ALONE = """import mmap, os, time
os.mkdir("tensorflow")
with open("tensorflow/lib.so", "wb+") as file:
    file.truncate(4096)
    mapped = mmap.mmap(file.fileno(), 0)
time.sleep(6)
"""


@pytest.mark.usefixtures("real_mesos")
def test_workers_that_trained_alone_are_a_warning(succeed, run_process, tmp_path: Path) -> None:
    """Each has trained a model of its own, although two workers should train one."""
    (tmp_path / "train.py").write_text(ALONE)
    service = {"strategy": "multi_worker_mirrored", "job_url": "train.py"}
    path = options(tmp_path, "python train.py", service, parameter_server={"count": 0})

    code, out, error = run_process("local", "run", path, "--json", "--report", tmp_path / "page.html")
    needed = "`tf.distribute.MultiWorkerMirroredStrategy()`, and the TF_CONFIG that the scheduler sets"
    why = f"worker-0 had no connection to another task; it needs {needed}"
    warning = f"; warning: the workers did not train together: {why}"
    assert (0, True) == (code, json.loads(out)["reason"].endswith(warning))
    assert "notice: service.strategy: multi_worker_mirrored, but the program has no MultiWorkerMirroredStr" in error
    assert " succeeded, warning " in succeed("history")
    assert warning in succeed("history", "show", "last")
    shown = [
        json.loads(out),
        *json.loads(succeed("history", "--json")),
        json.loads(succeed("history", "show", "--json", "last")),
    ]
    assert [warning.replace("; warning: ", "")] * 3 == [item["warning"] for item in shown]
    page = (tmp_path / "page.html").read_text()
    assert "succeeded, warning" in page
    assert "did not train together" in page


def test_history_needs_no_mesos(invoke, tmp_path: Path, kept) -> None:
    """Tables for people, a page of an old run, and what has changed since."""
    assert "no runs recorded yet" in invoke("history")[1]
    kept.save(a_run())
    then = {"python": "3.10", "sha256_gone.py": "12ab"}
    job = {"service": {"command": "python train.py", "job_url": (tmp_path / "gone.py").as_uri()}}
    kept.save(a_run(id="other", submitted=1.0, environment=then, options=job, state="failed"))

    assert "mnist-1" in invoke("history")[1]
    assert "worker-1, generation 1, on agent-1: failed: agent-2 was lost" in invoke("history", "show", "mnist")[1]
    assert "3.10" in invoke("history", "compare", "last", "other")[1]
    assert (0, "") == invoke("history", "compare", "last", "other", "--report", tmp_path / "both.html")[::2]
    assert "<h1>mnist-1 and other</h1>" in (tmp_path / "both.html").read_text()
    code, out, err = invoke("history", "show", "last", "--report", tmp_path / "page.html")
    assert (0, "") == (code, err)
    assert "<h1>mnist</h1>" in (tmp_path / "page.html").read_text()
    code, out, err = invoke("history", "reproduce", "other")
    assert "warning: python was 3.10; it is now 3." in err
    assert "warning: sha256_gone.py was 12ab; it is now missing, and no copy was kept" in err
    assert "python train.py" == json.loads(out)["service"]["command"]


def test_foreign_record_runs_and_reads_nothing(invoke, tmp_path: Path, kept) -> None:
    """The author of a shared record chooses the interpreter and the file in it."""
    program, secret, team = tmp_path / "py", tmp_path / "secret", tmp_path / "team"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    secret.write_text("secret")
    team.mkdir()
    service = {"command": "python a.py", "python": str(program), "job_url": secret.as_uri()}
    job = {"service": service, "worker": {"count": 2, "python": sys.executable}}
    then = {"python": "3.11", "sha256_secret": "12ab", "interpreter_2_python": "3.10"}
    record = a_run(id="nice-20260101-000000-abcdef", options=job, environment=then)
    SharedRuns(team).save(record)

    code, _, errors = invoke("history", "--store", team, "reproduce", "nice")
    assert (0, False) == (code, (tmp_path / "ran").exists())
    assert "warning: python was 3.11; not compared, because another user ran it" in errors
    assert "warning: sha256_secret was 12ab; not compared, because another user ran it" in errors
    assert f"interpreter_2_python was 3.10; it is now {platform.python_version()}" in errors
    kept.save(record)
    invoke("history", "--store", team, "reproduce", "nice")
    assert (tmp_path / "ran").exists(), "the interpreters of own runs are compared"


def test_terminal_commands_of_others_are_removed(invoke, tmp_path: Path) -> None:
    """They may change the clipboard and hide lines of the operator's terminal."""
    evil, team, logs = "a\x1b]52;c;AAAA\x07\x1b[2J\u202eb\x9b2J\r", tmp_path / "team", tmp_path / "cluster" / "logs"
    team.mkdir()
    logs.mkdir(parents=True)
    launch = a_launch(task=evil, agent=evil, message=evil, state=evil)
    facts = {"reason": evil, "note": evil, "environment": {evil: evil}, "launches": (launch,), "state": evil}
    SharedRuns(team).save(a_run(id="bad-20260101-000000-abcdef", **facts))
    (team / "no\x1b]0;x\x07.json").touch()
    (logs / "master.log").write_text(evil)

    for words in ("", "show bad", f"reproduce bad -o {tmp_path}/options.json", "compare bad bad"):
        code, out, errors = invoke("history", "--store", team, *words.split())
        assert (0, []) == (code, re.findall(r"[^\n\t -~\xa0-\u2029\u2030-\uffff]", out + errors))
    assert (0, "a]52;c;AAAAb2J\n") == invoke("local", "logs", "--dir", tmp_path / "cluster")[:2]


def test_incomplete_characters_of_others_are_escaped(invoke, tmp_path: Path) -> None:
    """One record with them must not hide the runs of the others."""
    half, team, page = "a\ud800b\udfff", tmp_path / "team", tmp_path / "page.html"
    team.mkdir()
    launch = a_launch(task=half, agent=half, message=half, state=half)
    facts = {"reason": half, "note": half, "environment": {half: half}, "launches": (launch,), "service": half}
    SharedRuns(team).save(a_run(id="bad-20260101-000000-abcdef", **facts, options={"service": {"command": half}}))
    (team / os.fsdecode(b"r\xe9-20260101-000000-abcdef.json")).write_text(
        json.dumps(to_json(a_run(id="r\udce9-20260101-000000-abcdef")))
    )

    for words in ("", "show bad", f"reproduce bad -o {tmp_path}/\udce9.json", f"show bad --report {page}"):
        code, out, errors = invoke("history", "--store", team, *words.split())
        assert (0, True) == (code, "not records of runs: r\\udce9-20260101-000000-abcdef.json" in errors), errors
        assert "\\ud" in out
    assert "<h1>a\\ud800b\\udfff</h1>" in page.read_text()


def test_commands_print_without_terminal_commands() -> None:
    """`click.echo` prints any character; `echo` removes the terminal's commands."""
    home = Path(start.__file__).parent
    calls = {path.name: path.read_text().count("click.echo(") for path in home.rglob("*.py")}
    # The scheduler's file is a program of its own.
    assert {"scheduler.py": 2} == {name: count for name, count in calls.items() if count}


@pytest.mark.parametrize("spoiled", [{}, {"curves": 1}, {"process": "no number"}, None])
def test_added_record_of_another_server_is_checked(invoke, tmp_path: Path, kept, spoiled) -> None:
    """A record from a server neither names files of this machine nor is trusted."""

    class Scheduler(QuietHandler):
        def respond(self) -> None:
            self.answer(200, json.dumps({**to_json(a_run()), **spoiled} if spoiled is not None else [1]).encode())

    with HttpServer(Scheduler) as server:
        code, _, errors = invoke("history", "add", "--url", server.url)
    if spoiled in (None, {"curves": 1}):
        assert (3, True) == (code, "does not answer as a scheduler" in errors), errors
    else:
        (run,) = kept.runs()
        assert ("", "", {}) == (run.folder, run.process, run.environment)


def test_best_of_three_runs_by_accuracy_is_first(invoke, kept) -> None:
    """Not the newest one, and not the one with the best last value or the lowest loss."""
    values = {"old": ((0.5, 0.97), (0.4, 0.90)), "middle": ((0.1, 0.95), (0.1, 0.95)), "new": ((0.3, 0.1), (0.3, 0.2))}
    for at, (name, points) in enumerate(values.items()):
        curve = tuple(a_point(60 * at, 1, loss, metrics={"accuracy": best}) for loss, best in points)
        kept.save(a_run(id=name, submitted=T0 + 60 * at, curves={"worker-0": curve}, note=f"lr {at}"))
    kept.save(a_run(id="without", submitted=T0 + 600, curves={}))

    def listed(*words: str) -> list[str]:
        return [item["id"] for item in json.loads(invoke("history", *words, "--json")[1])]

    assert ["without", "new", "middle", "old"] == listed("--metric", "accuracy")
    assert ["old", "middle", "new", "without"] == listed("--metric", "accuracy", "--best")
    assert ["middle"] == listed("--best", "-n", "1")
    _, table, _ = invoke("history", "--metric", "accuracy", "--best")
    (first,) = (line for line in table.splitlines() if line.startswith("old"))
    assert ["0.97", "1", "lr", "0"] == first.split()[-4:]
    assert datetime.fromtimestamp(T0).strftime("%Y-%m-%d %H:%M") in first
    code, out, err = invoke("history", "--metric", "acuracy")
    assert (1, "") == (code, out)
    assert "--metric acuracy: no run has it; known metrics: accuracy, loss" in err


def test_runs_are_selected_by_time_and_service(invoke, kept) -> None:
    now = time.time()
    kept.save(a_run(id="young", service="digits", submitted=now - 100))
    kept.save(a_run(id="aged", submitted=now - 3 * 86_400))
    day = datetime.fromtimestamp(now - 2 * 86_400).strftime("%Y-%m-%d")

    def listed(*words: str) -> list[str]:
        return [item["id"] for item in json.loads(invoke("history", *words, "--json")[1])]

    assert ["young", "aged"] == listed("--since", "4d")
    assert ["young"] == listed("--since", "1h") == listed("--since", day) == listed("--service", "digits")
    assert [] == listed("--since", "30s")
    code, _, err = invoke("history", "--since", "yesterday")
    assert 2 == code
    assert "yesterday: must be a time such as 30m, 2h or 7d, or a date such as 2026-01-31" in err


def test_absurd_numbers_keep_tables_narrow(invoke, kept) -> None:
    """A loss of 1e308 would be 411 characters; JSON has the exact numbers."""
    curves = {"worker-0": (a_point(3, 2**63 - 1, 1e308, speed=1e308),)}
    kept.save(a_run(curves=curves))
    kept.save(a_run(id="other", curves=curves))

    for words in (("history",), ("history", "show", "other"), ("history", "compare", "mnist-1", "other")):
        code, out, err = invoke(*words)
        assert (0, "") == (code, err)
        assert "9.223e+18" in out
        assert "1e+308" in out
        assert 110 >= max(map(len, out.splitlines()))
    assert 2**63 - 1 == json.loads(invoke("history", "show", "other", "--json")[1])["curves"]["worker-0"][0]["step"]


def test_results_are_rounded_for_people(invoke, kept) -> None:
    """The sum of speeds has digits that mean nothing; JSON has the exact numbers."""
    speed = 15.635000000000002
    kept.save(a_run(curves={"worker-0": (a_point(3, 7, 0.25, speed=speed),)}))

    assert "  median_examples_per_second: 15.64\n" in invoke("history", "show", "last")[1]
    assert speed == json.loads(invoke("history", "--json")[1])[0]["median_examples_per_second"]


def test_report_goes_to_file_or_standard_output(invoke, tmp_path: Path, kept) -> None:
    """`-` is standard output; a full disk is exit code 1."""
    kept.save(a_run())

    code, out, err = invoke("history", "show", "last", "--report", "-")
    full = invoke("history", "show", "last", "--report", "/dev/full")
    refused = invoke("local", "run", tmp_path / "options.json", "--report", "-")

    assert (0, "") == (code, err)
    assert out.startswith("<!doctype html>")
    assert out.endswith("</html>\n")
    assert (1, "") == full[:2]
    assert "/dev/full: cannot be written: No space left on device" in full[2]
    assert (1, "") == refused[:2]
    assert "--report cannot be `-`, because standard output contains the result" in refused[2]
    assert not (Path.cwd() / "-").exists()


def test_compare_uses_default_options(invoke, kept) -> None:
    """Added records hold changed options only; `reproduce` warns of changed defaults."""
    command = {"service": {"name": "mnist", "command": "true"}}
    full = mask_options(resolve(command))
    then = {**full, "worker": {**full["worker"], "count": 7, "no_more": 1}}
    kept.save(a_run(id="old", options=command, environment={}))
    kept.save(a_run(id="new", options=command, environment={}, resolved=then))

    compared = json.loads(invoke("history", "compare", "old", "new", "--json")[1])
    assert {"old", "new"} == {*map(json.loads(invoke("history", "compare", "--json")[1]).get, ("old", "new"))}
    _, _, err = invoke("history", "reproduce", "new")
    output = json.loads(invoke("history", "reproduce", "new", "--json")[1])

    assert [full["worker"]["count"], 7] == next(
        [item["old"], item["new"]] for item in compared["options"] if item["name"] == "worker.count"
    )
    assert f"warning: worker.count was 7; its default is now {full['worker']['count']}" in err
    assert ["worker.count"] == [item["name"] for item in output["defaults"]]


def test_run_of_killed_command_is_lost(invoke, tmp_path: Path, kept) -> None:
    """The run is stored from its start; the history shows its records and any result."""
    begun = {"state": "running", "reason": "", "launches": (), "curves": {}, "seconds": 0.0}
    me = ProcessId.of(os.getpid())
    folders = {name: RunFolder(tmp_path / name) for name in ("going", "gone", "over")}
    for folder in folders.values():
        folder.scheduler.mkdir(parents=True)
    launched = {"launched": "id", "task": "worker-0", "generation": 1, "agent": "a", "address": "a:1", "t": T0 + 1}
    decided = {"result": "failed", "reason": "worker-0 failed", "t": T0 + 9}
    folders["gone"].recording.write_text(encode_line(launched))
    folders["over"].recording.write_text(encode_line(launched) + encode_line(decided))
    processes = {"going": me, "gone": me and replace(me, start_time=1), "over": None}
    for place, (name, process) in enumerate(processes.items()):
        identity = f"{process.pid}:{process.start_time}" if process else "1:1"
        times = {**begun, "submitted": T0 - place}
        kept.save(a_run(id=name, folder=str(tmp_path / name), process=identity, **times))

    runs = {name: json.loads(invoke("history", "show", name, "--json")[1]) for name in folders}

    assert {"going": "running", "gone": "lost", "over": "failed"} == {name: run["state"] for name, run in runs.items()}
    assert ([], 1, 1) == (runs["going"]["launches"], *(len(runs[name]["launches"]) for name in ("gone", "over")))
    assert "ended without a result" in runs["gone"]["reason"]
    assert ("worker-0 failed", 11.0) == (runs["over"]["reason"], runs["over"]["seconds"])
    assert "lost" in invoke("history")[1]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("--url http://127.0.0.1:1 history", 2, "run: history add --url URL"),
        ("history show nothing", 1, "nothing: unknown run; the newest runs are mnist-1"),
    ],
)
def test_refused_history_names_the_remedy(invoke, kept, words: str, code: int, message: str) -> None:
    """The recording of a service, or the newest runs."""
    kept.save(a_run())

    ended, out, err = invoke(*words.split())

    assert (code, "", True) == (ended, out, message in err), err


def test_show_names_only_folders_with_files(invoke, tmp_path: Path, kept) -> None:
    """A lost run has no logs of its tasks; a service has no folder here."""
    for folder in ("logs", "checkpoints"):
        (tmp_path / "kept" / folder).mkdir(parents=True)
    (tmp_path / "kept" / "checkpoints" / "1").touch()
    for name, folder in (("local", str(tmp_path / "kept")), ("added", "")):
        kept.save(a_run(id=name, folder=folder))

    local, added = (invoke("history", "show", name)[1].splitlines()[1] for name in ("local", "added"))

    assert local.endswith(f"; checkpoints: {tmp_path}/kept")
    assert ";" not in added


@pytest.fixture
def cluster(local_cluster):
    """The shared cluster; services are uninstalled afterwards."""
    yield local_cluster
    if InstalledService.all(local_cluster.directory):
        run_command("local", "uninstall", "--all", "--dir", local_cluster.directory)


def test_service_is_added_kept_and_listed_with_runs(
    cluster, run_process, start_process, succeed, tmp_path: Path, kept
) -> None:
    """A local run, a killed one and a service, while it trains and after its end."""
    program = 'echo "{\\"step\\": 5, \\"accuracy\\": 0.75}" > $TF_EXECUTOR_PROGRESS; exec sleep 1000'
    secret = {"environment": {"API_TOKEN": "hush-hush"}}
    path = options(tmp_path, program, {**secret, "name": "served"})

    succeed("local", "install", "--options", path, "--dir", cluster.directory)
    (installed,) = InstalledService.all(cluster.directory)
    url, port = installed.url, urlsplit(installed.url).port
    answer = lambda: request(port, "/v1/tf/progress", token=installed.token).text  # noqa: E731
    wait_until(lambda: '"step":5' in answer().replace(" ", ""))
    added = succeed("history", "add", "--url", url)
    (going,) = kept.runs()
    by_name = succeed("--name", "served", "history", "add")
    succeed("local", "uninstall", "served", "--dir", cluster.directory)
    (ended,) = kept.runs()

    assert added.startswith("added served-")
    assert added == by_name
    assert ("served", "running", "stopped") == (going.service, going.state, ended.state)
    assert going.id == ended.id
    assert ({"accuracy": 0.75}, 5) == (ended.last.metrics, ended.last.step)
    assert "sleep 1000" in ended.options["service"]["command"]
    assert ended.resolved["service"]["strategy"] == "between_graph"
    assert b"hush-hush" not in (tmp_path / "state" / "dcos-tensorflow" / "history.db").read_bytes()

    succeed("local", "run", options(tmp_path, "true", {"name": "short"}), "--dir", cluster.directory)
    killed = start_process(
        "local", "run", options(tmp_path, "exec sleep 1000", {"name": "long"}), "--dir", tmp_path / "other"
    )
    wait_until(lambda: any(item.service == "long" for item in kept.runs()))
    killed.kill()
    killed.wait()
    listed = {item["service"]: item for item in json.loads(run_process("history", "--json")[1])}
    assert {"served": "stopped", "short": "succeeded", "long": "lost"} == {
        name: item["state"] for name, item in listed.items()
    }
    assert ["long", "short", "served"] == list(listed)
    table = succeed("history", "--metric", "accuracy", "--best")
    assert 3 == table.count(datetime.now().strftime("%Y-%m-%d"))
    assert table.index("served-") < table.index("long-")


@pytest.fixture
def service(local_cluster, tmp_path: Path):
    """Its records go to the folder `team`; worker 0 ends with the file `end`."""
    program = (
        'case "$TASK_NAME" in worker-0) ;; *) exec sleep 1000;; esac; for step in 1 2 3; do '
        'echo "{\\"step\\": $step, \\"accuracy\\": 0.$step}" > $TF_EXECUTOR_PROGRESS; sleep 0.7; done; '
        f"until [ -e {tmp_path}/end ]; do sleep 0.1; done"
    )
    secret = {"API_TOKEN": "hush-hush"}
    command = SchedulerCommand(
        tmp_path / "service.json",
        local_cluster.master.address,
        service={"name": "shared", "command": program, "environment": secret},
        history={"store": str(tmp_path / "team")},
    )
    yield command
    command.stop()


def test_record_of_killed_scheduler_reaches_the_team(service, run_process, tmp_path: Path, kept) -> None:
    """The result is stored before the record, and the curve survives an empty sandbox."""
    team, asked = tmp_path / "team", lambda path: json.loads(service.request(path).text)
    scheduler = service.start(RECORDING_FILE=str(tmp_path / "first"))
    wait_until(lambda: service.status("/v1/health") == 200, "no scheduler")
    wait_until(lambda: '"step":3' in service.request("/v1/tf/progress").text.replace(" ", ""), "no progress")
    before = asked("/v1/tf/run")
    service.end(scheduler)
    scheduler = service.start(RECORDING_FILE=str(tmp_path / "second"))
    wait_until(lambda: service.status("/v1/health") == 200, "no scheduler")
    (tmp_path / "end").touch()
    wait_until(lambda: asked("/v1/tf/result")["over"], "no result")
    assert "No such file or directory" in asked("/v1/tf/runs")["problem"]
    assert "the record of the run is not stored: history.store" in service.request("/v1/events").text
    scheduler.kill()
    scheduler.wait()
    team.mkdir()

    scheduler = service.start(RECORDING_FILE=str(tmp_path / "third"))
    wait_until(lambda: any(team.iterdir()), "no record")
    service.end(scheduler)

    (path,) = team.iterdir()
    record = json.loads(path.read_text())
    assert f"{before['id']}.json" == path.name
    assert ("succeeded", "shared") == (record["state"], record["service"])
    assert {"accuracy": 0.3} == record["best"]
    assert [1, 3] == [record["curves"]["worker-0"][place]["step"] for place in (0, -1)]
    assert "hush-hush" not in path.read_text()
    kept.save(a_run(submitted=record["submitted"] + 1))
    (team / f"{path.stem[:-6]}00000a.json").write_text("{")
    code, out, err = run_process("history", "--store", team, "--json")
    assert (0, ["mnist-1", record["id"]]) == (code, [item["id"] for item in json.loads(out)])
    assert f"notice: {team}: not records of runs: shared-" in err
    assert "accuracy" in run_process("history", "--store", team, "compare", "mnist-1", record["id"])[1]
    best = json.loads(run_process("history", "--store", team, "--metric", "accuracy", "--best", "--json")[1])
    assert record["id"] == best[0]["id"]


@pytest.mark.usefixtures("real_mesos")
def test_page_of_local_run_lists_earlier_ones(run_process, start_process, succeed, tmp_path: Path, kept) -> None:
    """An ended one and a killed one; the best of three by accuracy is first."""

    def job(accuracy: float, end: str) -> object:
        report = f'echo "{{\\"step\\": 5, \\"accuracy\\": {accuracy}}}" > $TF_EXECUTOR_PROGRESS'
        service = {"environment": {"ACCURACY": str(accuracy)}, "strategy": "independent"}
        return options(tmp_path, f"{report}; {end}", service, parameter_server={"count": 0}, worker={"count": 1})

    def following(count: int):
        wait_until(lambda: len(kept.runs()) == count and kept.runs()[0].process, "no run")
        folder = RunFolder(Path(kept.runs()[0].folder))
        wait_until(lambda: folder.recording.exists() and '"progress"' in folder.recording.read_text(), "no progress")
        address = urlsplit(json.loads(succeed("open", "--print", "--json"))["page"])
        token = address.fragment.removeprefix("token=")
        return lambda path: json.loads(request(address.port, path, token=token).text)

    succeed("local", "run", job(0.7, "sleep 1"), "--note", "lr 0.1")
    killed = start_process("local", "run", job(0.9, "exec sleep 1000"))
    following(2)
    killed.kill()
    killed.wait()
    last = start_process("local", "run", job(0.5, f"until [ -e {tmp_path}/end ]; do sleep 0.1; done"))
    asked = following(3)

    runs = asked("/v1/tf/runs")["runs"]
    assert ["running", "lost", "succeeded"] == [item["state"] for item in runs]
    assert [True, False, False] == [item["current"] for item in runs]
    assert [0.5, 0.9, 0.7] == [item["best_accuracy"] for item in runs]
    assert "lr 0.1" == runs[2]["note"]
    detail = asked(f"/v1/tf/runs/{runs[1]['id']}?points=10")
    assert ("0.9", 5) == (detail["options"]["service.environment.ACCURACY"], detail["points"][-1]["step"])
    (tmp_path / "end").touch()
    assert 0 == last.wait(PATIENCE)

    best = json.loads(succeed("history", "--metric", "accuracy", "--best", "--json"))
    assert [0.9, 0.7, 0.5] == [item["best_accuracy"] for item in best]
    assert [runs[0]["id"], runs[1]["id"], runs[2]["id"]] == [item.id for item in kept.runs()]
