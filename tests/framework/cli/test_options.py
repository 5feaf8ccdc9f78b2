"""`dcos-tensorflow options`: exit codes and output."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from kit.commands import run_program
from tf_scheduler.cli.common.options_file import load_document, load_options
from tf_scheduler.cli.main import cli
from tf_scheduler.options.generate import config_schema
from tf_scheduler.options.load import resolve
from tf_scheduler.options.schema.document import OPTIONS

PROGRAM = {"command": "python train.py", "strategy": "between_graph", "tf_image": ""}
GOOD: dict[str, Any] = {"service": PROGRAM, "worker": {"count": 1}}
#: Valid, with an option that has no effect.
NOTED = {**GOOD, "service": {**GOOD["service"], "mesos_api_version": "V0"}}


@pytest.fixture
def write(tmp_path: Path):
    """Make an options file; its path as text."""

    def make(document, name="options.json"):
        path = tmp_path / name
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return str(path)

    return make


@pytest.fixture
def run_options(invoke):
    return lambda *arguments: invoke("options", *arguments)


def test_validate_accepts_valid_file(run_options, write) -> None:
    """Exit code 0."""
    path = write(GOOD)

    assert (0, f"{path} is valid\n", "") == run_options("validate", path)


def test_job_file_is_valid_without_a_queue(run_options, write, capsys: pytest.CaptureFixture[str]) -> None:
    """With a notice, and without the section in the options of the scheduler."""
    job = write({"service": {"command": "true", "strategy": "independent"}, "job": {"priority": 5}})
    code, _, error = run_options("validate", job)
    assert (0, True) == (code, "notice: job: has no effect" in error)

    load_options(Path(job))
    assert 1 == capsys.readouterr().err.count("notice: job: has no effect")
    assert {"service", "executor"} == load_document(Path(job)).keys()

    assert "job.priority: must be" in run_options("validate", write({"job": {"priority": 101}}))[1]


def test_validate_prints_one_problem_per_line(run_options, write) -> None:
    """Exit code 1."""
    path = write({**GOOD, "worker": {"count": -1, "cpu": 1}})

    assert run_options("validate", path) == (
        1,
        "worker.count: must be a whole number from 0 to 100000, not -1\n"
        "worker.cpu: unknown option; did you mean `cpus`?\n",
        "",
    )


def test_validate_prints_problems_and_notices_as_json(run_options, write) -> None:
    _, bad, _ = run_options("validate", "--json", write({"service": {"job_url": "a"}}))
    code, good, error = run_options("validate", "--json", write(NOTED))

    assert (0, "") == (code, error)
    assert {"valid": True, "problems": []}.items() <= json.loads(good).items()
    assert ["service.mesos_api_version"] == [notice["path"] for notice in json.loads(good)["notices"]]
    assert ("worker.command", False) == (json.loads(bad)["problems"][0]["path"], json.loads(bad)["valid"])


def test_validate_reports_missing_files(run_options, write) -> None:
    """As errors if a path shows that the job runs on this machine only."""
    job = {"strategy": "independent", "command": "python a.py", "data": "file:///no/x", "python": "/no/y"}
    path = write({**GOOD, "service": {**job, "job_url": "no.zip"}, "parameter_server": {"count": 0}})

    missing = f"service.job_url: {Path(path).parent}/no.zip: file does not exist"
    others = (
        "service.data: /no/x: file does not exist",
        "service.python: program `/no/y` does not exist on this machine",
    )
    assert run_options("validate", path) == (1, "\n".join([missing, *others, ""]), "")
    path = write({**GOOD, "service": job, "parameter_server": {"count": 0}})
    notices = "".join(f"notice: {other}\n" for other in others)
    assert run_options("validate", path) == (0, f"{path} is valid\n", notices)


@pytest.mark.parametrize(("name", "verb"), [("python3.99", "exist"), ("HOME/python3.99", "start")])
def test_validate_names_interpreter_like_missing(run_options, write, tmp_path: Path, name: str, verb: str) -> None:
    """Shims of pyenv exist for versions that do not start."""
    shim = tmp_path / "python3.99"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    (tmp_path / "a.py").touch()
    python = name.replace("HOME", str(tmp_path))
    job = {"strategy": "independent", "command": "python a.py", "job_url": "a.py", "python": python}

    code, out, _ = run_options(
        "validate", "--run", write({"service": job, "worker": {"count": 1}, "parameter_server": {"count": 0}})
    )

    assert (1, f"service.python: program `{python}` does not {verb} ") == (code, out[: out.find(verb) + len(verb) + 1])
    assert "; did you mean `python3" in out


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A program that makes the file `started` next to it."""
    program = tmp_path / "python9"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("words", [(), ("--dcos",)])
@pytest.mark.parametrize("command", ["python a.py", "python9 a.py", "python -m mnist"])
def test_validate_starts_no_program_of_the_file(
    run_options, write, evil: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], command: str
) -> None:
    """Continuous integration validates files of other authors."""
    monkeypatch.chdir(evil.parent)
    (evil.parent / "a.py").write_text("import tensorflow as tf\ntf.keras.Sequential().fit()\n")
    job = {"strategy": "multi_worker_mirrored", "command": command, "job_url": "a.py", "python": "./python9"}
    executor, worker = {"python": str(evil)}, {"python": f"/usr/bin/../..{evil}"}
    path = write({"service": job, "executor": executor, "worker": worker, "parameter_server": {"count": 0}})

    _, out, errors = run_options("validate", path, *words)

    assert not (evil.parent / "started").exists(), out + errors
    assert (words == () and not out.startswith("service.command")) == ("was not started; check it" in errors)
    run_options("validate", "--run", path)
    assert (evil.parent / "started").exists()


def test_validate_starts_no_program_of_a_repository(run_options, write, evil: Path) -> None:
    """Git starts programs that the settings of a repository name, also to list files."""
    git = partial(run_program, "git", "-C", evil.parent / "job", "-c", "user.name=a", "-c", "user.email=a@b")
    for name in ("job/a.py", "job/data/a"):
        (evil.parent / name).parent.mkdir(exist_ok=True, parents=True)
        (evil.parent / name).touch()
    for words in ("init -q", "add .", "commit -qm first", "sparse-checkout set --cone --sparse-index"):
        assert 0 == git(*words.split()).returncode
    tree = git("rev-parse", "HEAD:data").stdout.strip()
    (evil.parent / "job/.git/objects" / tree[:2] / tree[2:]).unlink()  # fetched when files are listed
    for name, value in {"url": "file:///", "promisor": "true", "uploadpack": evil}.items():
        git("config", f"remote.origin.{name}", value)
    git("config", "core.fsmonitor", evil)
    job = {"strategy": "independent", "command": "python a.py", "job_url": "job"}

    run_options("validate", write({"service": job, "parameter_server": {"count": 0}}))

    assert not (evil.parent / "started").exists()
    git("ls-files", "--others")
    assert (evil.parent / "started").exists()


def test_validate_reports_command_of_other_agents(run_options, write) -> None:
    """As a notice: they may have the command."""
    job = {"strategy": "independent", "command": "pythn a.py", "job_url": "https://files.example.com/a.py"}

    code, _, err = run_options("validate", write({"service": job, "worker": {"count": 1}}))

    assert (0, True) == (code, "notice: service.command: pythn: command not found; did you mean `python`?" in err)


def test_validate_knows_runtimes(run_options, write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing one is the error of local run, an existing one is valid."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    job = {"strategy": "independent", "command": "true", "python": "runtime:tf"}
    path = write({"service": job, "worker": {"count": 1}})

    problem = (
        "service.python: unknown runtime `tf`; valid names: none; create it with `dcos-tensorflow runtime create`\n"
    )
    assert (1, problem, "") == run_options("validate", path)
    folder = tmp_path / "dcos-tensorflow" / "runtimes" / "tf"
    folder.mkdir(parents=True)
    content = {"name": "tf", "python": sys.executable, "version": "3.11.7", "tensorflow": "", "others": ["numpy"]}
    (folder / "runtime.json").write_text(json.dumps(content))
    code, out, err = run_options("validate", path)
    assert (0, f"{path} is valid\n") == (code, out)
    assert "does not exist" not in err


def test_validate_checks_data_of_local_runs(run_options, write, tmp_path: Path) -> None:
    """A path is relative to the file; agents of a cluster need a URL."""
    job = {"strategy": "independent", "command": "python a.py", "data": [{"url": "d/a.npz"}]}
    document = {**GOOD, "service": job, "parameter_server": {"count": 0}}
    path = write(document)
    folder = Path(path).parent / "d"

    assert run_options("validate", path) == (1, f"service.data: {folder}/a.npz: file does not exist\n", "")
    (folder / "a.npz").mkdir(parents=True)
    assert 0 == run_options("validate", path)[0]
    code, out, err = run_options("validate", "--dcos", path)
    assert (0, f"{path} is valid\n") == (code, out)
    assert "notice: service.data: d/a.npz: agents need a URL, such as https://files.example.com/a.npz;" in err


def test_notices_for_clusters_need_an_option(run_options, write, tmp_path: Path) -> None:
    """Most files run on this machine first, where they are not true."""
    (tmp_path / "train.py").touch()
    service = {"job_url": "train.py", "command": "python train.py", "strategy": "independent", "use_tensorboard": True}
    path = write({"service": {**service, "environment": {"A": "1"}}, "worker": {"count": 1}})

    local, for_dcos = run_options("validate", path), run_options("validate", "--dcos", path)

    assert (0, f"{path} is valid\n", f"for DC/OS also: dcos-tensorflow options validate --dcos {path}\n") == local
    paths = [line.split(": ")[1] for line in for_dcos[2].splitlines()]
    assert [
        *(
            "service.environment",
            "service.tf_image",
            "service.job_url",
            "service.use_tensorboard",
            "service.keep_files",
        ),
    ] == paths
    assert [] == json.loads(run_options("validate", "--json", path)[1])["notices"]
    assert 5 == len(json.loads(run_options("validate", "--json", "--dcos", path)[1])["notices"])


def test_notices_go_to_standard_error(run_options, write) -> None:
    _, _, error = run_options("validate", write(NOTED))

    assert "notice: service.mesos_api_version: has no effect: the scheduler speaks version 1 only\n" == error


def test_dash_is_standard_input() -> None:
    quiet = {**GOOD, "service": {**GOOD["service"], "keep_files": 0}}
    good = CliRunner().invoke(cli, ["options", "show", "-"], input=json.dumps(quiet))
    bad = CliRunner().invoke(cli, ["options", "validate", "-"], input="{")

    assert 1 == json.loads(good.stdout)["worker"]["count"]
    assert bad.stdout.startswith("standard input:1:2: } is missing at the end")


@pytest.mark.parametrize("command", ["validate", "show"])
def test_missing_options_file_is_named(run_options, command: str, tmp_path: Path) -> None:
    code, out, error = run_options(command, str(tmp_path / "none.json"))

    assert 1 == code
    assert f"{tmp_path}/none.json: No such file or directory\n" == out + error


def test_show_prints_changed_or_all_options_with_secrets_hidden(run_options, write) -> None:
    """Without secrets, the output is a valid options file."""
    _, output, _ = run_options("show", "--all", write(GOOD))
    _, hidden, _ = run_options("show", write({**GOOD, "service": {**PROGRAM, "gcs_key": "key"}}))

    assert resolve(GOOD) == resolve(without_nulls(json.loads(output)))
    counts = {"worker": {"count": 1}, "parameter_server": {"count": 2}, "chief": {"count": 0}}
    assert {"service": {**PROGRAM, "gcs_key": "********"}, **counts} == json.loads(hidden)
    assert output == run_options("show", "--all", "--json", write(GOOD))[1]


def test_show_prints_list_that_dcos_accepts(run_options, invoke, write) -> None:
    """Also if the file has the former form, an object, which DC/OS refuses."""
    former = write({**GOOD, "worker": {"environment": {"A": "1"}}})
    assert (1, True) == (
        invoke("package", "render", "--options", former)[0],
        "write a list" in run_options("validate", "--dcos", former)[2],
    )

    _, shown, _ = run_options("show", former)

    assert [{"name": "A", "value": "1"}] == json.loads(shown)["worker"]["environment"]
    assert 0 == invoke("package", "render", "--options", write(shown, "shown.json"))[0]


def without_nulls(value):
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return value


@pytest.mark.parametrize(
    ("change", "code", "output"),
    [
        (
            {"worker": {"count": 2, "mem": 2048}, "service": {**PROGRAM, "log_level": "DEBUG"}},
            0,
            'service.log_level: "INFO" -> "DEBUG"\n'
            "worker.count: 1 -> 2\n"
            "worker.mem: 4096 -> 2048\n"
            "restart ps-0: the size of the cluster changed\n"
            "restart ps-1: the size of the cluster changed\n"
            "restart worker-0: its resources and the size of the cluster changed\n"
            "add worker-1\n",
        ),
        (
            {"service": {**PROGRAM, "user": "me"}},
            1,
            'service.user: "nobody" -> "me"\n'
            'refused: service.user: cannot change from "nobody" to "me": the user of a Mesos framework is fixed\n',
        ),
        ({}, 0, "nothing changes\n"),
        ({"gang": {"hold_seconds": 6}}, 0, "gang.hold_seconds: 5.0 -> 6.0\nno task restarts\n"),
    ],
)
def test_diff_previews_update(run_options, write, change, code: int, output: str) -> None:
    """In the order of options and tasks."""
    new = write({**GOOD, **change}, "new.json")

    assert run_options("diff", write(GOOD, "old.json"), new) == (code, output, "")


def test_diff_names_each_unreadable_file_once(run_options, write, tmp_path: Path) -> None:
    new = write({**GOOD, "x": 1}, "new.json")

    code, out, error = run_options("diff", str(tmp_path / "none.json"), new)

    assert (1, f"{tmp_path}/none.json: No such file or directory\n{new}: x: unknown option\n") == (code, out + error)


def test_diff_as_json_has_all_fields(run_options, write) -> None:
    _, out, _ = run_options(
        "diff",
        "--json",
        write(GOOD, "old.json"),
        write({**GOOD, "worker": {"count": 0}, "chief": {"count": 1}}, "new.json"),
    )

    change = json.loads(out)
    assert {"changed", "refused", "restarted", "added", "removed", "requested"} == set(change)
    assert (["chief-0"], ["worker-0"]) == (change["added"], change["removed"])
    assert {"path": "worker.count", "old": 1, "new": 0} in change["changed"]


def test_diff_reports_problems_of_both_files(run_options, write) -> None:
    old, new = write({"worker": {"count": "1"}, "service": {"command": "x"}}, "old.json"), write("[]", "new.json")

    code, _, error = run_options("diff", old, new)

    assert 1 == code
    assert [f"{old}: worker.count: ", f"{new} must hold"] == [
        line[: len(start)]
        for line, start in zip(error.splitlines(), (f"{old}: worker.count: ", f"{new} must hold"), strict=True)
    ]


def test_schema_prints_schema_and_template(run_options) -> None:
    _, schema, _ = run_options("schema")
    _, template, _ = run_options("schema", "--template")

    assert config_schema() == json.loads(schema)
    assert "{{worker.count}}" == json.loads("{" + template + "}")["WORKER_COUNT"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("worker.cpu", "did you mean worker.cpus?"),
        ("wroker.cpus", "did you mean worker.cpus?"),
        ("cpus", "did you mean worker.cpus"),
        ("qqq", "`options schema` prints all options"),
    ],
)
def test_explain_suggests_similar_options(run_options, path: str, message: str) -> None:
    """Without a section, from every section."""
    code, _, error = run_options("explain", path)

    assert (1, True) == (code, message in error)


def test_explain_section_explains_each_option(run_options) -> None:
    """In the order of the schema."""
    _, out, _ = run_options("explain", "placement")

    assert [
        "placement.strategy",
        "placement.gpu_scheduling_behavior",
        "placement.near",
        "placement.draining_seconds",
    ] == [line.partition(":")[0] for line in out.splitlines() if line.startswith("placement.")]


def test_explain_prints_json(run_options) -> None:
    (item,) = json.loads(run_options("explain", "--json", "worker.cpus")[1]).items()

    assert ("worker.cpus", True) == (item[0], "variable: WORKER_CPUS" in item[1])


def test_shell_completes_option_paths() -> None:
    """What click's completion scripts ask for."""
    complete = ShellComplete(cli, {}, "dcos-tensorflow", "_DCOS_TENSORFLOW_COMPLETE")

    completions = complete.get_completions(["options", "explain"], "gpu_worker.p")

    assert [str(option) for option in OPTIONS if str(option).startswith("gpu_worker.p")] == [
        item.value for item in completions
    ]
    assert {"gpu_worker.python", "gpu_worker.placement_constraint"} <= {item.value for item in completions}


def test_error_message_has_no_control_characters(run_options, tmp_path: Path) -> None:
    """Messages quote keys of the file."""
    path = tmp_path / "options.json"
    path.write_text(r'{"x\u001b]0;y\u202ez": {}}')
    _, _, message = run_options("show", path)
    assert "x]0;yz" in message
    assert message.replace("\n", "").isprintable()
