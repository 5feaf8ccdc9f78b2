"""`dcos-tensorflow local run` as a process, on a real Mesos."""

import json
import re
import signal
from pathlib import Path

import pytest

from jobs import PATIENCE, UNTIL_KILLED, WORKER_0, agents, options, wait_for
from mesos_local.agents import AgentSpec, with_ports
from tf_scheduler.cli.local_run.fitting import check_feasible
from tf_scheduler.errors import JobError
from tf_scheduler.options.load import resolve
from tf_scheduler.options.spec import to_spec


@pytest.mark.usefixtures("real_mesos")
def test_job_ends_with_worker_0_and_is_reported(succeed, tmp_path: Path) -> None:
    """Exit code 0; all tasks had one ClusterSpec; only logs and results are kept."""
    last = "until [ $(ls $CHECKPOINT_DIR | wc -l) = 3 ]; do sleep 0.1; done; echo model > $CHECKPOINT_DIR/model"
    command = 'echo "$JOB_NAME $TASK_INDEX $TF_CONFIG"; touch $CHECKPOINT_DIR/$TASK_NAME; ' + WORKER_0.format(last)

    out = succeed("local", "run", options(tmp_path, command), "--json")
    result = json.loads(out)
    assert ("succeeded", "small") == (result["state"], result["service"])
    assert {"ps-0": "killed", "worker-0": "finished", "worker-1": "killed"} == {
        task["name"]: task["state"] for task in result["tasks"]
    }
    seen = {}
    for task in result["tasks"]:
        job, index, config = (Path(task["logs"]) / "stdout").read_text().split(" ", 2)
        seen[f"{job}-{index}"] = json.loads(config)
    addresses = {task["name"]: task["address"] for task in result["tasks"]}
    cluster = {"ps": [addresses["ps-0"]], "worker": [addresses["worker-0"], addresses["worker-1"]]}
    assert [cluster] * 3 == [config["cluster"] for config in seen.values()]
    assert {"type": "worker", "index": 1} == seen["worker-1"]["task"]
    assert "model\n" == (Path(result["checkpoints"]) / "model").read_text()
    assert {"logs", "checkpoints", "result.json"} == {path.name for path in Path(result["run"]).iterdir()}


@pytest.mark.usefixtures("real_mesos")
def test_output_of_all_tasks_is_followed(run_process, tmp_path: Path) -> None:
    """In a pipe, between the lines about the run; the rest before the end, too."""
    everywhere = "until [ $(ls $CHECKPOINT_DIR | wc -l) = 3 ]; do sleep 0.1; done; echo end >&2; printf last"
    command = 'echo "hello from $TASK_NAME"; touch $CHECKPOINT_DIR/$TASK_NAME; ' + WORKER_0.format(everywhere)

    code, out, err = run_process("local", "run", options(tmp_path, command), "--follow", "all")

    assert 0 == code, err
    lines = err.splitlines()
    assert {f"{task} | hello from {task}" for task in ("ps-0", "worker-0", "worker-1")} < set(lines)
    assert {"worker-0 | end", "worker-0 | last"} < set(lines)
    assert "hello" not in out


@pytest.mark.usefixtures("real_mesos")
def test_ctrl_c_stops_the_job_gracefully(start_process, tmp_path: Path) -> None:
    """The programs get SIGTERM and time to clean up; exit code 4."""
    marker = tmp_path / "marker"
    program = (
        f"trap 'echo saved > {marker}.$TASK_NAME; exit 0' TERM; "
        f"touch {marker}.up.$TASK_NAME; while :; do sleep 0.1; done"
    )
    process = start_process("local", "run", "-v", options(tmp_path, program))
    lines = iter(process.stderr.readline, "")
    running = 0
    while running < 3:
        running += "is running" in next(lines)
    wait_for(*(Path(f"{marker}.up.{task}") for task in ("ps-0", "worker-0", "worker-1")))

    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE)

    assert 4 == process.returncode
    assert "small stopped after" in out
    assert "SIGINT received" in out
    assert ["saved\n"] * 3 == [Path(f"{marker}.{task}").read_text() for task in ("ps-0", "worker-0", "worker-1")]


@pytest.mark.usefixtures("real_mesos")
def test_timeout_stops_the_job(run_process, tmp_path: Path) -> None:
    code, out, err = run_process("local", "run", options(tmp_path, UNTIL_KILLED), "--timeout", "1", "--json")

    assert 4 == code, err
    report = json.loads(out)
    assert ("stopped", "the run took longer than 1 s") == (report["state"], report["reason"])


@pytest.mark.usefixtures("real_mesos")
def test_infeasible_job_is_rejected_before_the_start(run_process, tmp_path: Path) -> None:
    """The message names the task, what it needs, and why each agent is too small."""
    path = options(tmp_path, worker={"cpus": 64})

    code, out, err = run_process(
        "local", "run", path, "--agents", agents(tmp_path, ("a", "cpus:1;mem:512"), ("b", "cpus:2;mem:512"))
    )

    assert (1, "") == (code, out)
    assert "the job can never fit these agents: they take 1 of 3 tasks" in err
    assert "worker-0, worker-1 need 64.1 cpus, 96 MB and a port each, including their executors" in err
    assert "  b   2 cpus, 512 MB   none: needs cpus 64.1, has 2" in err
    assert not (tmp_path / "state" / "dcos-tensorflow" / "runs").exists()


_TWO_AND_GPUS = (("agent-1", "cpus:2;mem:7693"), ("agent-2", "cpus:2;mem:7693"), ("agent-3", "cpus:2;mem:7693;gpus:2"))


def test_infeasible_job_shows_what_fits(invoke, tmp_path: Path) -> None:
    """In at most ten lines, and without a start."""
    path = options(
        tmp_path,
        service={"strategy": "multi_worker_mirrored"},
        parameter_server={"count": 0},
        worker={"count": 50, "cpus": 1, "mem": 1024, "disk": 4096},
    )

    code, out, err = invoke("local", "run", path, "--agents", agents(tmp_path, *_TWO_AND_GPUS))

    assert (1, "") == (code, out)
    assert err.endswith(
        "the job can never fit these agents: they take 2 of 50 workers\n"
        "  worker-0 to worker-49 need 1.1 cpus, 1088 MB, 4096 MB of disk and a port each, including their executors\n"
        "  agent-1, agent-2   2 cpus, 7693 MB   one each\n"
        "  agent-3            2 cpus, 7693 MB   none: its 2 GPUs are for jobs that ask for GPUs\n"
        "What fits: worker.count 2; or 6 with worker.cpus 0.5\n"
    )


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        (
            {
                "parameter_server": {"count": 1, "cpus": 0.1, "mem": 100, "disk": 0},
                "worker": {"count": 3, "cpus": 0.1, "mem": 100, "placement_constraint": '[["hostname","UNIQUE"]]'},
            },
            ("takes 2; hostname agent-1 already has 1 of 1 allowed tasks\n", "What fits: worker.count 2\n"),
        ),
        (
            {"parameter_server": {"count": 10, "cpus": 1}, "worker": {"count": 10, "cpus": 1}},
            ("What fits: parameter_server.count 1 and worker.count 1\n",),
        ),
        (
            {"parameter_server": {"count": 20}, "worker": {"count": 40}},
            (
                "  worker-0 to worker-39 need 0.2 cpus, 1088 MB and a port each, including their executors\n",
                "What fits: parameter_server.count 4 and worker.count 9\n",
            ),
        ),
    ],
)
def test_infeasible_job_names_constraint_and_minimum(invoke, tmp_path: Path, sections, expected) -> None:
    """Not only amounts: constraints limit counts, and omitted sizes shrink."""
    path = tmp_path / "options.json"
    path.write_text(json.dumps({"service": {"strategy": "between_graph", "command": "true"}, **sections}))

    code, _, err = invoke("local", "run", path, "--agents", agents(tmp_path, *_TWO_AND_GPUS), "--dir", tmp_path)

    assert 1 == code
    assert [text for text in expected if text not in err] == [], err
    assert 10 >= len(err.splitlines())


@pytest.mark.usefixtures("real_mesos")
def test_omitted_sizes_shrink_until_the_job_fits(run_process, tmp_path: Path) -> None:
    """The defaults are for clusters: 1 cpu and 4096 MB for each task."""
    path = tmp_path / "options.json"
    service = {"strategy": "between_graph", "command": WORKER_0.format("true")}
    path.write_text(json.dumps({"service": service, "worker": {"count": 3, "mem": 512}}))

    one = "cpus:2;mem:3072"
    hosts = agents(tmp_path, *((name, one) for name in "ab"))
    code, out, err = run_process("local", "run", "--json", path, "--agents", hosts)

    assert 0 == code, err
    assert 5 == len(json.loads(out)["tasks"])
    assert "notice: worker.cpus and worker.disk: not set; using 0.4 cpus and 1536 MB of disk here (1 cpu" in err
    assert "notice: parameter_server.cpus, parameter_server.mem and parameter_server.disk: not set; using 0.4" in err


def test_services_of_independent_tasks_must_fit_with_them() -> None:
    """Otherwise a task waits for its data service forever; other workers run in turn."""
    size = {"cpus": 0.4, "mem": 512, "disk": 0}
    data = {"workers": 3, "dispatcher_cpus": 0.4, "dispatcher_mem": 512, **size}
    service = {"strategy": "independent", "command": "true"}
    document = {"service": service, "worker": {"count": 9, **size}, "data_service": data}
    spec = to_spec(resolve(document, {"executor": {"url": "file:///executor"}}))

    with pytest.raises(JobError, match="they take 4 of 5 tasks"):
        check_feasible(spec, with_ports([AgentSpec("a", {"cpus": 2, "mem": 9000})]))
    check_feasible(spec, with_ports([AgentSpec("a", {"cpus": 2.5, "mem": 9000})]))


@pytest.mark.usefixtures("real_mesos")
def test_fit_reduces_explicit_sizes(run_process, tmp_path: Path) -> None:
    """Only this option does: without it, the job is refused."""
    path, hosts = options(tmp_path, worker={"cpus": 1.5}), agents(tmp_path, ("a", "cpus:2;mem:3072"))

    code, _, err = run_process("local", "run", path, "--agents", hosts)
    assert 1 == code
    assert "What fits: worker.count 1; or 2 with worker.cpus 0.75; or local run --fit\n" in err

    code, out, err = run_process("local", "run", "--fit", "--json", path, "--agents", hosts)
    assert 0 == code, err
    assert "notice: worker.cpus: too large; using 0.7 cpus here (1.5 cpus on a cluster)" in err
    assert 3 == len(json.loads(out)["tasks"])


@pytest.mark.parametrize("present", [True, False])
def test_missing_gpus_are_noticed(invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, present: bool) -> None:
    """Agents only count GPUs, so that the job would run; this one is too large."""
    monkeypatch.setattr("tf_scheduler.cli.local_run.fitting.can_check_gpus", lambda: present)
    path = options(tmp_path, gpu_worker={"count": 1, "cpus": 64})

    code, _, err = invoke("local", "run", path, "--agents", agents(tmp_path, *_TWO_AND_GPUS), "--dir", tmp_path)

    assert 1 == code
    assert present is ("notice: no GPU on this machine; agent-3 only counts them\n" not in err)


def test_all_input_errors_are_reported_together(invoke, tmp_path: Path) -> None:
    """Of both files; nothing is started."""
    path = options(tmp_path, service={"comand": "x", "strategy": "sync"}, worker={"cpus": "two"})
    (tmp_path / "agents.json").write_text('[{"hostname": "a", "resource": "cpus:1"}]')

    code, out, err = invoke("local", "run", path, "--agents", tmp_path / "agents.json")

    assert (1, "") == (code, out)
    for expected in (
        "service.comand: unknown option; did you mean `command`?",
        "service.strategy: must be one of",
        'worker.cpus: must be a number from 0.01 to 4096 (cores), not "two"',
        "did you mean 'resources'?",
    ):
        assert expected in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "options.json: No such file or directory"),
        ("{", "options.json:1:2: } is missing at the end"),
        ('{"service": {"command": "x", "python": "/no/python"}}', "service.python: program `/no/python` does"),
        ('{"service": {"command": "x", "data": "file:///no/x"}}', "service.data: /no/x: file does not exist"),
    ],
)
def test_invalid_options_file_exits_with_1(invoke, tmp_path: Path, content: str | None, message: str) -> None:
    """With a message, as JSON too, and no traceback."""
    path = tmp_path / "options.json"
    if content is not None:
        path.write_text(content)

    code, out, err = invoke("local", "run", path, "--json")

    assert 1 == code
    assert message in err
    error = json.loads(out)["error"]
    assert ("failed", True) == (error["code"], message in error["message"])
    assert "Traceback" not in err


FILE = '{{"service": {{"name": "mnist", "command": "true"{}}}, "worker": {{"count": 1{}}}{}}}'


@pytest.mark.parametrize("command", ["options validate", "local run"])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            '{\n  "service": {\n    // the program\n    "name": "mnist"\n  }\n}\n',
            "options.json:3:5: JSON has no comments\n    // the program\n    ^\n",
        ),
        (
            '{"service": {"name": \'mnist\'}}',
            "options.json:1:22: text needs double quotes: \"x\", not 'x'\n"
            '{"service": {"name": \'mnist\'}}\n                     ^\n',
        ),
        (
            FILE.format("", "", ', "ps": {}, "replicas": 2, "env": {}, "master": {}'),
            "env: unknown option; did you mean `service.environment`?\n"
            "master: unknown option; did you mean `chief`?\n"
            "ps: unknown option; did you mean `parameter_server`?\n"
            "replicas: unknown option; did you mean `worker.count`?\n",
        ),
        (FILE.format("", ', "mem": "1G"', ""), 'worker.mem: must be MB, such as 4096, not "1G" (text)\n'),
        (
            '{"service": {"command": ["python"]}, "worker": {"count": 1}}',
            'service.command: must be text, not ["python"] (a list)\n',
        ),
        (
            FILE.format(', "job_url": "nosuch.py"', "", ""),
            "service.job_url: nosuch.py: file does not exist\n",
        ),
        (
            FILE.format(', "job_url": "options.json"', ', "command": "pythn x.py"', ""),
            "worker.command: pythn: command not found; did you mean `python`?\n",
        ),
    ],
)
def test_mistake_prints_only_what_is_wrong(
    invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, content: str, expected: str
) -> None:
    """The whole text, before anything starts, with names of other systems explained."""
    monkeypatch.chdir(tmp_path)
    Path("options.json").write_text(content)

    code, out, err = invoke(*command.split(), "options.json")

    assert (1, expected) == (code, out + err)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            "OPTIONS --follow wroker-0",
            1,
            "--follow: `wroker-0`: unknown task; expected one of leader, all, ps-0, worker-0, worker-1",
        ),
        ("OPTIONS --report FOLDER/none/page.html", 1, "page.html: cannot be written: No such file or directory"),
        ("", 2, "Usage: dcos-tensorflow local run"),
    ],
)
def test_wrong_argument_is_rejected_before_the_run(invoke, tmp_path: Path, words: str, code: int, message: str) -> None:
    paths = words.replace("OPTIONS", str(options(tmp_path))).replace("FOLDER", str(tmp_path))

    ended, out, err = invoke("local", "run", *paths.split())

    assert (code, "", True) == (ended, out, message in err), err
    assert not (tmp_path / "state" / "dcos-tensorflow" / "runs").exists()


@pytest.mark.usefixtures("real_mesos")
def test_files_of_a_run_are_kept_and_pruned(succeed, run_process, tmp_path: Path) -> None:
    """What a program saves beside itself, up to the limit; `history prune` removes it."""
    command = "echo model > model.keras; truncate -s 3000000 big"
    path = options(
        tmp_path,
        command,
        service={"strategy": "independent", "keep_files": 2},
        worker={"count": 1},
        parameter_server={"count": 0},
    )

    out = succeed("local", "run", path)
    kept = re.search(r"^  files     model\.keras \(6 bytes\) of worker-0 in (\S+)$", out, re.MULTILINE)
    assert kept is not None, out
    assert "model\n" == (Path(kept[1]) / "model.keras").read_text()
    assert re.search(r"^  not kept  big \(3.0 MB\) of worker-0: service.keep_files is smaller$", out, re.MULTILINE)
    (stored,) = json.loads(succeed("history", "--json"))
    shown = json.loads(succeed("history", "show", stored["id"], "--json"))
    folder, (left,) = Path(shown["folder"]), shown["files"]["left"]
    assert ("worker-0", kept[1], "big", 3_000_000, "service.keep_files is smaller") == tuple(left.values())
    (Path(kept[1]) / "model.keras").unlink()
    assert "not kept, worker-0: model.keras (6 bytes): removed since then" in succeed("history", "show", "last")

    assert {"removed": [], "dry_run": False} == json.loads(succeed("history", "prune", "--json"))
    assert "removed the folders of 1 run, " in succeed("history", "prune", "--keep", "0")
    assert not folder.exists()
    assert 2 == run_process("history", "prune", "--keep", "-1")[0]
