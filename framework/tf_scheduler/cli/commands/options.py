"""Commands `options`: write, validate, show, compare and explain options."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from dcos_command.command import Group, IntRange, echo, examples
from tf_scheduler.cli.common.folders import UserPath, file_type, force_option, read, source_name
from tf_scheduler.cli.common.options_file import SYSTEM_PATH, local_problems, program_warnings
from tf_scheduler.cli.common.output import echo_json, echo_result, json_option, print_notices, print_or_write
from tf_scheduler.cli.common.programs import program_sources
from tf_scheduler.cli.local_run.new_options import NewOptions, new_options
from tf_scheduler.convert.program import scan, strategy_named
from tf_scheduler.convert.tables import command_line
from tf_scheduler.errors import OptionsError, Problem
from tf_scheduler.options.environment import template_lines
from tf_scheduler.options.generate import config_schema
from tf_scheduler.options.generate import explain as explained
from tf_scheduler.options.job_file import split_job
from tf_scheduler.options.load import as_lists, parse, resolve
from tf_scheduler.options.schema.document import OPTIONS, changed_options, mask_options
from tf_scheduler.options.schema.jobs import JOBS
from tf_scheduler.options.update import Difference, difference
from tf_scheduler.options.warnings import find_local_warnings, find_warnings
from tf_scheduler.runtimes.runtimes import is_own_interpreter

#: For output that is always JSON, so that --json is accepted by every command.
ignored_json_option = click.option("--json", is_flag=True, expose_value=False, help="No effect: output is always JSON.")

#: Options that most jobs set, in the order of an options file.
COMMON_OPTIONS = (
    *("service.name", "service.strategy", "service.job_url", "service.command", "service.data", "service.environment"),
    *("service.python", "service.checkpoint_dir", "worker.count", "worker.cpus", "worker.mem"),
    "parameter_server.count",
)


@click.group(cls=Group)
@examples("options init multi_worker_mirrored train.py", "options validate options.json")
def options() -> None:
    """Check, complete, compare and explain options files.

    FILE may be - for standard input.
    """


@options.command()
@examples("options validate options.json", "options validate --dcos options.json")
@click.argument("file", type=file_type)
@click.option("--dcos", is_flag=True, help="Also print notices for DC/OS and other clusters.")
@click.option("--run", is_flag=True, help="Start all interpreters that FILE names, to check them.")
@json_option
def validate(file: Path, dcos: bool, run: bool, as_json: bool) -> None:
    """Check FILE and print every problem.

    Prints one `path: message` per line. Notices go to standard error: surprising options, and
    how checkpoints are stored. Without --run, --dcos starts no interpreter, and otherwise only runtimes and those on
    the PATH are started.

    Exit code: 0 valid, 1 invalid.
    """

    def may_start(python: str) -> bool:
        is_missing = shutil.which(python, path=f"{SYSTEM_PATH}:{os.environ.get('PATH', '')}") is None
        return run or is_missing or (not dcos and is_own_interpreter(python))

    try:
        document, resolved = _load(file)
        local = [] if str(file) == "-" else list(local_problems(resolved, file.parent, may_start))
        if relative := [problem for problem, is_certain in local if is_certain]:
            raise OptionsError(relative)
    except OptionsError as error:
        echo_result({"valid": False, "problems": _as_dicts(error.problems), "notices": []}, str(error), as_json)
        sys.exit(1)
    of_clusters, of_all = find_warnings(document, resolved), find_local_warnings(document, resolved)
    notices = [
        *(of_clusters if dcos else of_all),
        *program_warnings(resolved, file.parent, may_start),
        *(problem for problem, _ in local),
        *([] if dcos else _unstarted(resolved, may_start)),
    ]
    print_notices(() if as_json else notices)
    # Most jobs of one machine have no folder for their files: not a reason to mention DC/OS.
    more = [each for each in of_clusters if each.path != "service.keep_files"]
    if not (dcos or as_json) and len(more) > len(of_all):
        echo(f"for DC/OS also: dcos-tensorflow options validate --dcos {command_line([file])}", err=True)
    echo_result({"valid": True, "problems": [], "notices": _as_dicts(notices)}, f"{file} is valid", as_json)


def _unstarted(resolved: Mapping[str, Any], may_start: Callable[[str], bool]) -> Iterator[Problem]:
    for section in ("service", "executor", *JOBS):
        if (python := resolved[section]["python"]) and not may_start(python):
            yield Problem(f"{section}.python", f"`{python}` was not started; check it with --run")


@options.command()
@examples("options show options.json", "options show --all options.json")
@click.argument("file", type=file_type)
@click.option("--all", "has_defaults", is_flag=True, help="Print every option, also those with their default.")
@ignored_json_option
def show(file: Path, has_defaults: bool) -> None:
    """Print options that differ from their default, as JSON.

    Secrets are masked.
    """
    document, resolved = _load(file)
    masked = mask_options(resolved)
    echo_json(as_lists(masked if has_defaults else changed_options(masked, resolved)))
    print_notices(find_warnings(document, resolved))


@options.command()
@examples("options diff options.json new.json")
@click.argument("old", type=file_type)
@click.argument("new", type=file_type)
@json_option
def diff(old: Path, new: Path, as_json: bool) -> None:
    """Show what an update from OLD to NEW restarts or refuses.

    Exit code: 0 possible, 1 refused.
    """
    before, after = _load_all(old, new)
    change = difference(before, after)
    echo_result(asdict(change), "\n".join(_diff_lines(change)), as_json)
    sys.exit(1 if change.refused else 0)


@options.command()
@examples("options schema > config.json")
@click.option("--template", is_flag=True, help="Print the variables of the package's Marathon template.")
@ignored_json_option
def schema(template: bool) -> None:
    """Print the JSON Schema (draft 4) of the options file.

    The package contains the schema as config.json.
    """
    echo(",\n".join(template_lines()) if template else json.dumps(config_schema(), indent=2))


@options.command()
@examples(
    "options init multi_worker_mirrored train.py", "options init ParameterServerStrategy --workers 4 -o mnist.json"
)
@click.argument("strategy", default="")
@click.argument("program", type=UserPath(dir_okay=False), default="train.py")
@click.option("--workers", type=IntRange(min=1, max=100_000), help="Number of workers. Default: 2; independent: 1.")
@click.option(
    "-o", "--output", type=UserPath(dir_okay=False), default="options.json", show_default=True, help="File to write."
)
@click.option("--dcos", is_flag=True, help="Write the form that `dcos package install` accepts.")
@click.option("--from", "source", type=file_type, metavar="FILE", help="Write the options of a YAML file as JSON.")
@force_option
@json_option
def init(
    strategy: str,
    program: Path,
    workers: int | None,
    output: Path,
    dcos: bool,
    source: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write a short options file for PROGRAM.

    STRATEGY is a value of service.strategy, or the name of its class in TensorFlow or PyTorch. PROGRAM is train.py by
    default. Sets TF_USE_LEGACY_KERAS if the program needs Keras 2. With --from, omit STRATEGY and PROGRAM.
    """
    if bool(strategy) is bool(source):
        raise click.UsageError("pass STRATEGY, such as multi_worker_mirrored, or --from FILE")
    if strategy and Path(strategy).is_file():
        guess = scan(program_sources(Path(strategy))).strategy.value
        raise click.UsageError(f"name the strategy first: options init {guess} {strategy}")
    if source:
        made = _read_yaml(source, for_dcos=dcos)
    else:
        made = new_options(program, output.parent, strategy_named(strategy), (workers, None), fit=not dcos)
    document, notices = as_lists(made.document) if dcos else made.document, list(made.notices)
    if dcos and not source:
        notices.append(Problem("service.job_url", "replace it by a URL from which the agents can fetch the program"))
    print_or_write(document, output, force, quiet=True)
    run = "dcos package install tensorflow --options=" if dcos else "dcos-tensorflow local run "
    step = f"{run}{command_line([output])}"
    print_notices(() if as_json else notices)
    value = {"file": str(output), "options": document, "notices": _as_dicts(notices), "next": step}
    echo_result(value, f"wrote {output}: {made.summary}. Run it: {step}", as_json)


def _read_yaml(file: Path, *, for_dcos: bool) -> NewOptions:
    """Return the options of a YAML file, which may also be JSON. Raises OptionsError."""
    from tf_scheduler.convert.conversion import yaml_documents  # slow import, rarely needed

    name = source_name(file)
    documents = yaml_documents(read(file), name)
    if len(documents) != 1:
        raise OptionsError(f"{name}: contains {len(documents)} documents; one is required")
    try:
        document = parse(json.dumps(documents[0]).encode(), name)
    except TypeError as error:  # such as a date
        raise OptionsError(f"{name}: {error}; quote the value") from error
    warnings = (find_warnings if for_dcos else find_local_warnings)(document, resolve(split_job(document)[1]))
    return NewOptions(document, f"the options of {name}", tuple(warnings))


def _complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [
        CompletionItem(str(option), help=option.metadata("description"))
        for option in OPTIONS
        if str(option).startswith(incomplete)
    ]


@options.command()
@examples("options explain", "options explain worker.cpus", "options explain worker")
@click.argument("path", shell_complete=_complete, default="")
@json_option
def explain(path: str, as_json: bool) -> None:
    """Explain the option PATH, or all options of a section.

    Without PATH, explain the options that most jobs set, and list the sections.
    """
    if not path:
        texts = {name: explained(option) for name in COMMON_OPTIONS for option in OPTIONS if str(option) == name}
        sections = ", ".join(dict.fromkeys(option.path[0] for option in OPTIONS))
        more = f"Further options: `dcos-tensorflow options explain SECTION`, for each of {sections}"
        echo_result(texts, "\n\n".join([*texts.values(), more]), as_json)
        return
    matches = [option for option in OPTIONS if str(option) == path or str(option).startswith(f"{path}.")]
    if not matches:
        raise OptionsError([Problem(path, f"unknown option{_suggestion(path)}", "unknown_option")])
    texts = {str(option): explained(option) for option in matches}
    echo_result(texts, "\n\n".join(texts.values()), as_json)


def _suggestion(path: str) -> str:
    """Return a hint: the most similar path, or without a section all similar paths."""
    names = get_close_matches(path.rpartition(".")[2], {option.path[-1] for option in OPTIONS}, n=1)
    similar = [str(option) for option in OPTIONS if option.path[-1] in names]
    if "." in path:
        similar = get_close_matches(path, similar, n=1) or similar
    return f"; did you mean {' or '.join(similar)}?" if similar else "; `options schema` prints all options"


def _load(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the document of a file, and its options with all defaults."""
    document = parse(read(file), source_name(file))
    return document, resolve(split_job(document)[1])


def _load_all(*files: Path) -> list[dict[str, Any]]:
    """Return each file's options. Raises OptionsError with all files' problems."""
    resolved, problems = [], []
    for file in files:
        try:
            resolved.append(_load(file)[1])
        except OptionsError as error:
            # A problem without a path names its file already.
            problems += [Problem(f"{file}: {each.path}" if each.path else "", each.message) for each in error.problems]
    if problems:
        raise OptionsError(problems)
    return resolved


def _as_dicts(problems: Iterable[Problem]) -> list[dict[str, str]]:
    return [asdict(problem) for problem in problems]


def _diff_lines(change: Difference) -> Iterator[str]:
    if not change.changed:
        yield "nothing changes"
        return
    for item in change.changed:
        yield f"{item.path}: {json.dumps(item.old)} -> {json.dumps(item.new)}"
    if change.refused:
        yield from (f"refused: {problem}" for problem in change.refused)
        return
    yield from (f"restart {item.task}: {item.reason}" for item in change.restarted)
    yield from (f"add {name}" for name in change.added)
    yield from (f"remove {name}" for name in change.removed)
    if not (change.restarted or change.added or change.removed):
        yield "no task restarts"
