"""Every link from a page of the repository to a page or file of it must resolve."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kit.commands import run_program
from tf_executor.contract.states import Activity
from tf_scheduler.cli.main import cli
from tf_scheduler.options.job_file import split_job
from tf_scheduler.options.load import resolve
from tf_scheduler.options.schema.document import Options

HOME = Path(__file__).resolve().parent.parent
#: [text](target), not an image's address on another server, nor a place on the same page.
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)\s#]+)[^)]*\)")
#: [text](target#anchor); the target is empty on the same page.
_ANCHOR = re.compile(r"\]\((?!https?:|mailto:)([^)\s#]*)#([^)\s]+)\)")
_CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)


def pages() -> list[Path]:
    """Return tracked and new pages of the repository, not those of ignored folders.

    An sdist has no repository.
    """
    if not (HOME / ".git").exists():
        return [path for path in HOME.rglob("*.md") if ".venv" not in path.parts]
    listed = run_program("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md", cwd=HOME, check=True)
    return [HOME / name for name in listed.stdout.splitlines() if (HOME / name).exists()]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(HOME)))
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = _LINK.findall(_CODE.sub("", page.read_text()))
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(HOME)))
def test_lines_of_pages_are_short(page: Path) -> None:
    """A long line hides a change in a diff; tables and code cannot be broken."""
    text = re.sub(r"^ {4,}[^\n]*$|^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert [] == [line for line in text.splitlines() if len(line) > 150 and not line.lstrip().startswith(("|", "["))]


def test_page_of_local_runs_has_the_word_of_every_activity() -> None:
    page = (HOME / "docs" / "how-to" / "local.md").read_text()
    words = re.findall(r"^\| ([A-Z]+(?:, [A-Z]+)*) \|", page, re.MULTILINE)

    assert {activity.value.upper() for activity in Activity} == {word for row in words for word in row.split(", ")}


def heading_ids(page: Path) -> set[str]:
    """Return the anchors that a page has on GitHub."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(HOME)))
def test_every_anchor_exists(page: Path) -> None:
    """A link to a renamed heading leads to the top of a long page."""
    links = [(page.parent / name if name else page, anchor) for name, anchor in _ANCHOR.findall(page.read_text())]
    existing = [(target, anchor) for target, anchor in links if target.suffix == ".md" and target.exists()]
    wrong = [f"{target.name}#{anchor}" for target, anchor in existing if anchor not in heading_ids(target)]

    assert [] == wrong


def test_pages_that_code_names_exist() -> None:
    """Messages, help and comments send readers to a page, whose folder is its kind."""
    folders = "|".join(path.name for path in (HOME / "docs").iterdir() if path.is_dir())
    suffixes = {".py", ".js", ".json", ".cfg", ".mustache"}
    files = [path for name in ("framework", "executor", "package", "scripts") for path in (HOME / name).rglob("*")]
    named = [
        (path.name, page)
        for path in [*files, HOME / "setup.cfg"]
        if path.suffix in suffixes and "_vendor" not in path.parts
        for page in re.findall(rf"docs/(?:{folders})/[\w/-]+(?:\.\w+)?", path.read_text())
    ]

    assert len(named) > 30
    assert [] == [(name, page) for name, page in named if not (HOME / page).exists()]


def test_tour_names_code_that_exists() -> None:
    """The tour stays true when code moves: each `path: name` is defined in that file."""
    text = (HOME / "docs" / "develop" / "tour.md").read_text()
    roots = (HOME / "framework" / "tf_scheduler", HOME / "executor" / "tf_executor", HOME)
    named = re.findall(r"`([\w/]+\.py)(?:: (\w+)(?:\.(\w+))?)?`", text)
    wrong = []
    for path, *names in named:
        file = next((root / path for root in roots if (root / path).exists()), None)
        code = "" if file is None else file.read_text()
        if file is None or not all(re.search(rf"(def|class) {name}\b", code) for name in names if name):
            wrong.append(f"{path}: {'.'.join(names)}")

    assert len(text.splitlines()) < 100
    assert named
    assert [] == wrong


#: Where a quoted message may be composed of several strings: punctuation, values, examples of names, and these words.
_JOINT = re.compile(
    r"\.\.\.|[;:,()\[?}]|`\w+`|(?:(?:signal|process) )?\S*\d\S*|options\.json|service\.comand|\b(?:but|failed|mem)\b"
)


def test_troubleshooting_quotes_messages_of_the_product() -> None:
    """A user searches the page for the words that the program printed."""
    page = (HOME / "docs" / "how-to" / "troubleshooting.md").read_text()
    headings = re.findall(r"^\*\*(.+?)\*\*", page, re.MULTILINE)
    quoted = [text for heading in headings for _, text in re.findall(r"(``?)(.+?)\1", heading) if " " in text]
    files = [path for part in ("framework", "executor") for path in (HOME / part).rglob("*.py")]
    nodes = (node for path in files for node in ast.walk(ast.parse(path.read_bytes())))
    texts = "\n".join(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    parts = {part.strip() for text in quoted for part in _JOINT.split(text)}

    assert len(quoted) > 15
    assert [] == sorted(part for part in parts if " " in part and part not in texts)


#: An indented or fenced block without a language, or of a shell.
_BLOCK = re.compile(r"^```(?:(?:sh|bash|console)[^\n]*)?\n(.*?)^```$|((?:^ {4,}\S.*\n)+)", re.DOTALL | re.MULTILINE)
#: `dcos-tensorflow`, with its folder, or `dcos tensorflow`, at the start of a command.
_PROGRAM = re.compile(r"(?:^|(?<=\| )|(?<=&& ))(?:\$ )?(?:\w+=\S* )*(?:\S*/)?dcos[- ]tensorflow (.*)$")
_END = frozenset({"|", ">", ">>", "2>", "<", "&&", "||", ";", "&", "2>&1"})
_JSON = re.compile(r"^ *```json[^\n]*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


def commands(text: str) -> Iterator[str]:
    """Yield the arguments of each command of this project in code blocks."""
    for block in _BLOCK.finditer(text):
        for line in (block[1] or block[2]).replace("\\\n", " ").splitlines():
            if match := _PROGRAM.search(line.strip()):
                yield match[1]


def parse_command(line: str) -> None:
    """Raise click.UsageError for an unknown command or option."""
    words = [word for word in shlex.split(line, comments=True) if not re.search(r"[][]", word)]  # [optional]
    words = words[: next((index for index, word in enumerate(words) if word in _END), len(words))]
    command: click.Command = cli
    context = cli.make_context("dcos-tensorflow", list(words))
    while isinstance(command, click.Group) and (words := [*context.protected_args, *context.args]):
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        command = found
        try:
            context = command.make_context(name, list(words), parent=context)
        except click.BadParameter as error:
            if isinstance(error, click.MissingParameter):
                raise
            return  # a placeholder, or a file of the reader
        except click.exceptions.Exit:
            return


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(HOME)))
def test_commands_of_pages_exist(page: Path) -> None:
    """A reader types what a page shows; RUN_BY names the tests that run the commands."""
    wrong = []
    for line in commands(page.read_text()):
        try:
            parse_command(line)
        except click.UsageError as error:
            wrong.append(f"{line}: {error.format_message()}")

    assert [] == wrong


def test_unknown_commands_and_options_are_found() -> None:
    text = "    dcos-tensorflow local rnu a.json\n\n```sh\nA=1 bin/dcos-tensorflow logs --tial 3 worker-0 | head\n```\n"

    assert 2 == len(list(commands(text)))
    for line in commands(text):
        with pytest.raises(click.UsageError):
            parse_command(line)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(HOME)))
def test_options_on_pages_are_valid(page: Path) -> None:
    """A reader copies them. Some are parts of a file, or a file on each line."""
    sections = Options().fields
    for block in _JSON.findall(page.read_text()):
        several = block.startswith("{") and all(line.endswith("}") for line in block.splitlines())
        for document in [json.loads(text) for text in (block.splitlines() if several else [block])]:
            if document.keys() & sections:
                document = split_job(document)[1]
                service = {"command": "true", **document.get("service", {})}
                alone = {} if "strategy" in service else {"parameter_server": {"count": 0}}
                resolve({**alone, **document, "service": {"strategy": "independent", **service}})


#: Options of every command.
_COMMON = frozenset({"--name", "--url", "--token", "--yes"})
_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?:(?<=\n\n)|\A)((?: {4,}[^\n]+\n)+)")
_OTHER = re.compile(
    r"(?:sudo|python3[\d.]*|\S*pip|source|git|scripts/\S+|dcos|docker|systemctl|curl|kill|export|echo|mkdir|install|\(umask"
    r"|FUZZ_\w+=\S+|\.venv/bin/\S+)(?:\s|$)"
)


def shown_commands(text: str) -> Iterator[str]:
    """Yield commands in blocks; those of this project also in sentences."""
    blocks = [(language, block) for _, language, block in _FENCE.findall(text) if language in ("", "sh")]
    rest = _FENCE.sub("", text)
    blocks += [("", block) for block in _INDENTED.findall(rest)]
    for language, block in blocks:
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            for part in line.strip().removeprefix("$ ").split(" && "):
                if _PROGRAM.search(part) or _OTHER.match(part) or language:
                    yield part
    for _, code in re.findall(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", _INDENTED.sub("", rest), re.DOTALL):
        if _PROGRAM.match(" ".join(code.split())):
            yield " ".join(code.split())


def command_key(line: str) -> str:
    """Return the names and options of a command of this project; else the line."""
    match = _PROGRAM.search(line)
    if match is None:
        return re.sub(r"^\S*/pip ", "pip ", " ".join(line.partition(" #")[0].split()))
    words = [word for word in shlex.split(match[1], comments=True) if not re.search(r"[][]", word)]
    words = words[: next((index for index, word in enumerate(words) if word in _END or word == "--"), len(words))]
    command: click.Command | None = cli
    names = []
    for word in words:
        if isinstance(command, click.Group) and (child := command.get_command(click.Context(command), word)):
            command = child
            names.append(word)
    options = {word.partition("=")[0] for word in words if word.startswith("-")} - _COMMON
    is_group = isinstance(command, click.Group) and not command.invoke_without_command
    return "" if is_group else " ".join([*names, *sorted(options)])


#: Test or what tests share, and the commands that it runs in an equivalent form, with the options that a page may use.
RUN_BY = {
    "containers/test_images.py::test_image_of_an_archive_has_its_variables_and_layers": "local image build",
    "containers/test_isolation.py::test_cluster_with_containers_is_started_and_stopped": "local up --containers",
    "dcoscli/test_dcos_versions.py::test_files_of_tasks_are_listed_and_read": "dcos task log",
    "dcoscli/test_dcos_versions.py::test_api_token_from_option_variable_and_settings": "plan resume",
    "dcoscli/test_dcos_versions.py::test_log_of_the_scheduler_needs_no_file_name": "dcos service log",
    "dcoscli/test_real_dcos.py::test_on_a_cluster_installs_updates_and_ends": (
        "dcos package repo add; dcos package install; result; update status; update start --options; history "
        "add; status; uninstall; why; logs -f; dcos task log; history add --options"
    ),
    "dcoscli/test_real_dcos.py::test_repositories_are_added_listed_and_removed": "scripts/local-dcos; export DCOS_URL",
    "dcoscli/test_real_dcos.py::test_rendered_app_runs_on_marathon_without_dcos": "curl -X POST",
    "dcoscli/test_real_dcos.py::test_submitted_job_is_followed_to_its_result": "submit --detach --set; wait; tasks",
    "dcoscli/test_real_dcos.py::test_uninstall_removes_tasks_framework_and_state": "dcos package uninstall",
    "examples/test_first_job.py::check_first_job": (
        "options init --workers; options validate; logs; open --print; kill -9; events -n; local run; "
        "history; history show --report"
    ),
    "examples/test_first_job.py::test_readme_trains_a_model": "try --workers",
    "examples/test_first_job.py::test_first_job_trains_with_tensorflow_2_15": "runtime create --python --tensorflow",
    "executor/test_progress.py::test_shell_script_can_report": "echo",
    "framework/cli/local_run/test_on_mesos.py::test_commands_find_local_run_without_options": (
        "endpoints; plan list; plan status; pod restart; progress"
    ),
    "framework/cli/test_convert.py::test_failed_conversion_prints_its_warnings": "convert --command -o",
    "framework/cli/test_convert.py::test_converted_file_is_valid": "convert -o",
    "framework/cli/test_convert_local.py::test_converted_file_runs_without_an_edit": "convert --local --program",
    "framework/cli/test_exec.py::test_command_runs_in_task_on_mesos": "exec --timeout",
    "framework/cli/test_history.py::test_record_of_killed_scheduler_reaches_the_team": (
        "history --best --metric --store"
    ),
    "framework/cli/test_history.py::test_run_is_stored_drawn_compared_and_reproduced": (
        "history compare; history reproduce -o; history show --json; local run --note --report"
    ),
    "framework/cli/test_run.py::test_files_of_a_run_are_kept_and_pruned": "history prune --keep",
    "framework/cli/test_history.py::test_runs_are_selected_by_time_and_service": "history --service --since",
    "framework/cli/test_history.py::test_service_is_added_kept_and_listed_with_runs": (
        "local install --options; local uninstall"
    ),
    "framework/cli/test_install.py::test_update_and_rollback_restart_the_scheduler": "update rollback",
    "framework/cli/test_local.py::test_up_status_logs_down": "local up; local logs; local down",
    "framework/cli/test_metrics_and_logs.py::test_metrics_and_json_log_of_real_scheduler": (
        "curl http://127.0.0.1:PORT/v1/metrics/prometheus"
    ),
    "framework/cli/test_new_options.py::test_file_for_dcos_is_a_valid_package_configuration": (
        "options init --dcos --workers -o; package render --options"
    ),
    "framework/cli/test_new_options.py::test_options_in_yaml_are_rewritten": "options init --from",
    "framework/cli/test_options.py::test_diff_previews_update": "options diff",
    "framework/cli/test_options.py::test_notices_for_clusters_need_an_option": "options validate --dcos",
    "framework/cli/test_options.py::test_explain_suggests_similar_options": "options explain",
    "framework/cli/test_options.py::test_show_prints_list_that_dcos_accepts": "options show",
    "framework/cli/test_options.py::test_schema_prints_schema_and_template": "options schema",
    "framework/cli/test_package.py::test_validate_prints_problems": "package validate --sources",
    "framework/cli/test_run.py::test_timeout_stops_the_job": "local run --json --timeout",
    "framework/queue_service/test_on_mesos.py::test_job_is_submitted_once_moved_and_cancelled": (
        "queue; queue move --queue --priority; submit --to --id --detach --priority; status; cancel"
    ),
    "framework/queue_service/test_on_mesos.py::test_urgent_job_preempts_and_victim_resumes": "submit --to --priority",
    "framework/cli/test_runtime.py::test_runtime_is_created_once_and_completely": (
        "runtime create --package --tensorflow; runtime list; runtime remove"
    ),
    "framework/cli/test_scheduler.py::test_scheduler_stops_restarts_and_uninstalls": "scheduler health --port",
    "framework/cli/test_state.py::test_backup_moves_service_to_another_store": (
        "state export --output --service; state import"
    ),
    "framework/cli/test_state.py::test_backup_replaces_damaged_value": "state import --replace",
    "framework/cli/test_state.py::test_show_prints_framework_and_tasks": "state show --service",
    "framework/cli/test_updates.py::test_idle_service_shows_its_result_until_uninstall": "plan force-complete",
    "framework/cli/test_updates.py::test_ring_is_scaled_by_paused_update_and_by_marathon": (
        "update pause; update resume; curl -s http://marathon; curl -X PUT"
    ),
    "framework/dcos_command/test_commands.py::test_config_list_shows_changes": "config list; config show",
    "framework/dcos_command/test_commands.py::test_logs_of_a_past_run": "logs --run --stderr --tail",
    "framework/dcos_command/test_commands.py::test_logs_since_a_time": "logs --since",
    "framework/dcos_command/test_commands.py::test_plan_commands_change_the_plan": "plan pause",
    "framework/dcos_command/test_commands.py::test_pod_commands_change_the_pod": "pod pause; pod replace",
    "framework/dcos_command/test_commands.py::test_health_accepts_every_status": "health",
    "framework/dcos_command/test_commands.py::test_unknown_name_lists_valid_names": "update force-restart",
    "framework/dcos_command/test_commands.py::test_working_directory_is_copied": "cp",
    "framework/doctor/test_command.py::test_security_omits_the_other_checks": "doctor --security",
    "framework/doctor/test_on_mesos.py::test_agents_before_installation": "doctor --master --options",
    "framework/doctor/test_on_mesos.py::test_service_next_to_others": "doctor",
    "framework/package/test_on_a_cluster.py::test_page_makes_package_options_and_app": (
        "package build --artefacts-url --out; package render --artefacts-url --changed --digests --options"
    ),
    "framework/secrets/test_executor_login.py::test_process_in_place_of_the_executor": (
        "secrets acknowledge; curl http://127.0.0.1:PORT/v1/health"
    ),
    "framework/secrets/test_on_mesos.py::test_secret_does_not_leak": "secrets refresh",
    "test_audit.py::test_snapshot_can_be_an_archive": "scripts/audit --snapshot",
    "test_distributions.py::test_every_python_builds_same_package": "scripts/install-locked",
    "test_installation.py::test_setup_shows_progress_and_no_warning": "scripts/setup",
    "test_installation.py::test_program_with_reports_runs_without_dependencies": (
        "pip install --ignore-requires-python --no-deps"
    ),
    "test_installation.py::test_wheel_runs_job_on_debian": (
        "python3; pip install dcos-tensorflow; pip install 'dcos-tensorflow["
    ),
    "test_lock.py::test_keras_2_fits_tensorflow": "pip install --no-deps",
    "framework/test_members_on_mesos.py::test_workers_join_and_leave_without_a_restart": "scale",
}
#: Why no test runs a command.
NOT_RUN = {
    "it changes this machine": "sudo apt-get; mkdir -p /etc; install -m 644; (umask 077;",
    "it installs packages; tests/examples trains the same options": "scripts/demo",
    "tests have a folder of their own": "mkdir ~/digits; cd ~/digits",
    "it needs systemd": "systemctl",
    "it needs a container engine; tests/image runs the steps of the Dockerfile": "docker",
    "it needs DC/OS Enterprise": "dcos security",
    "it downloads gigabytes of CUDA; runtimes/test_catalogue.py checks its packages": (
        "runtime create --gpu --tensorflow"
    ),
    "tests that type the page start its programs on the PATH": "source",
    "an agent that is gone can never return to the shared cluster; scripts/chaos sends the call": "curl -d",
    "it takes minutes to hours, or writes files of the repository": (
        "scripts/audit; scripts/chaos; scripts/core-coverage; scripts/lock; scripts/record-state; "
        "scripts/test; .venv/bin/python scripts/mutation-test; FUZZ_"
    ),
}


def is_covered(key: str, entry: str) -> bool:
    """Return whether the table's entry is for this command."""
    used, offered = key.split(), entry.split()
    names = [word for word in used if not word.startswith("-")]
    if _OTHER.match(key):
        return key.startswith(entry)
    return names == [word for word in offered if not word.startswith("-")] and set(used) <= set(offered)


def uncovered(text: str) -> list[str]:
    """Return the commands of a page that neither table has."""
    entries = [entry for table in (RUN_BY, NOT_RUN) for group in table.values() for entry in group.split("; ")]
    keys = {key for line in shown_commands(text) if (key := command_key(line))}
    return sorted(key for key in keys if not any(is_covered(key, entry) for entry in entries))


@pytest.mark.parametrize(
    "page", ["README.md", *(str(page.relative_to(HOME)) for page in pages() if page.is_relative_to(HOME / "docs"))]
)
def test_commands_of_pages_are_run(page: str) -> None:
    """Name the test of a new command in RUN_BY, or the reason in NOT_RUN."""
    assert [] == uncovered((HOME / page).read_text())


def test_command_without_a_test_is_found() -> None:
    """In a block, in a sentence, and with an option that its test does not use."""
    text = "    docker ps\n\n```sh\nmake all\ndcos-tensorflow history && dcos ps\n```\n`dcos tensorflow logs -q`\n"

    assert ["dcos ps", "logs -q", "make all"] == uncovered(text)


@pytest.mark.parametrize("test", RUN_BY)
def test_tests_of_commands_exist(test: str) -> None:
    """The file of the test, or the page that it types, has each word of its commands."""
    file, _, name = test.partition("::")
    text = (HOME / "tests" / file).read_text()
    sources = [text, *(page.read_text() for page in pages() if f'"{page.name}"' in text)]
    sources += [path.read_text() for path in (HOME / "tests").glob("*.py") if f"from {path.stem} import" in text]

    assert f"\ndef {name}(" in text
    for entry in RUN_BY[test].split("; "):
        own = _OTHER.match(entry) is None
        assert [] == [word for word in entry.split() if own and not any(word in source for source in sources)]
