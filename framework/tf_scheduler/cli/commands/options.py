"""`dcos-tensorflow options`: what an options file says, whether it is right, and what an update with it would do."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from dcos_command.main import Group
from tf_scheduler.cli.common.options_file import changed_options
from tf_scheduler.cli.common.output import json_option
from tf_scheduler.errors import JobError, OptionsError, Problem
from tf_scheduler.options.environment import template_lines
from tf_scheduler.options.generate import config_schema
from tf_scheduler.options.generate import explain as explained
from tf_scheduler.options.load import parse, resolve
from tf_scheduler.options.schema.document import OPTIONS, mask_options
from tf_scheduler.options.update import Difference, difference
from tf_scheduler.options.warnings import find_warnings

file_type = click.Path(dir_okay=False, allow_dash=True, path_type=Path)
#: For what is JSON in any case: so that --json is right after every command.
ignored_json_option = click.option("--json", is_flag=True, expose_value=False, help="It is JSON in any case.")


class Loaded(NamedTuple):
    """An options file as it was given, and with every option filled in."""

    document: dict[str, Any]
    options: dict[str, Any]


@click.group(cls=Group)
def options() -> None:
    """The options file: check it, complete it, compare it. FILE may be - for standard input."""


@options.command()
@click.argument("file", type=file_type)
@json_option
def validate(file: Path, as_json: bool) -> None:
    """Tell all that is wrong with FILE, one `path: message` per line.

    Exit code 0: nothing is. What is not wrong but surprising is told on standard error, as notices.
    """
    try:
        loaded = _load(file)
    except OptionsError as error:
        told = {"valid": False, "problems": _as_dicts(error.problems), "notices": []}
        click.echo(json.dumps(told, indent=2) if as_json else str(error))
        sys.exit(1)
    found = find_warnings(loaded.document, loaded.options)
    if as_json:
        click.echo(json.dumps({"valid": True, "problems": [], "notices": _as_dicts(found)}, indent=2))
    else:
        _print_notices(found)
        click.echo(f"{file} is valid")


@options.command()
@click.argument("file", type=file_type)
@click.option("--changed", is_flag=True, help="Only options that are not at their default.")
@ignored_json_option
def show(file: Path, changed: bool) -> None:
    """Print every option with the value that FILE gives it, as JSON; secrets are hidden."""
    loaded = _load(file)
    shown = mask_options(loaded.options)
    click.echo(json.dumps(changed_options(shown, loaded.options) if changed else shown, indent=2))
    _print_notices(find_warnings(loaded.document, loaded.options))


@options.command()
@click.argument("old", type=file_type)
@click.argument("new", type=file_type)
@json_option
def diff(old: Path, new: Path, as_json: bool) -> None:
    """Tell what an update from OLD to NEW would do: which tasks restart, what is refused and why.

    Exit code 1: the update would be refused.
    """
    before, after = _load_both(old, new)
    found = difference(before.options, after.options)
    click.echo(json.dumps(_diff_json(found), indent=2) if as_json else "\n".join(_diff_lines(found)))
    sys.exit(1 if found.refused else 0)


@options.command()
@click.option("--template", is_flag=True, help="Print instead the variables of the package's Marathon template.")
@ignored_json_option
def schema(template: bool) -> None:
    """Print the JSON Schema (draft 4) of the options file; it is the package's config.json."""
    click.echo(",\n".join(template_lines()) if template else json.dumps(config_schema(), indent=2))


def _complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [
        CompletionItem(str(option), help=option.metadata("description"))
        for option in OPTIONS
        if str(option).startswith(incomplete)
    ]


@options.command()
@click.argument("path", shell_complete=_complete)
@json_option
def explain(path: str, as_json: bool) -> None:
    """Tell all about the option PATH, such as worker.cpus, or about all of a section, such as worker."""
    found = [option for option in OPTIONS if str(option) == path or str(option).startswith(f"{path}.")]
    if not found:
        raise OptionsError([Problem(path, f"is no option{_suggestion(path)}")])
    told = {str(option): explained(option) for option in found}
    click.echo(json.dumps(told, indent=2) if as_json else "\n\n".join(told.values()))


def _suggestion(path: str) -> str:
    """The nearest whole path; without a section, every option of the nearest name."""
    names = get_close_matches(path.rpartition(".")[2], {option.path[-1] for option in OPTIONS}, n=1)
    alike = [str(option) for option in OPTIONS if option.path[-1] in names]
    if "." in path:
        alike = get_close_matches(path, alike, n=1) or alike
    return f"; did you mean {' or '.join(alike)}?" if alike else "; `options schema` prints them all"


def _load(file: Path) -> Loaded:
    document = parse(read(file), "standard input" if str(file) == "-" else str(file))
    return Loaded(document, resolve(document))


def _load_both(old: Path, new: Path) -> tuple[Loaded, Loaded]:
    loaded, wrong = [], []
    for file in (old, new):
        try:
            loaded.append(_load(file))
        except OptionsError as error:
            # What has no path names its file by itself.
            wrong += [Problem(f"{file}: {found.path}" if found.path else "", found.message) for found in error.problems]
    if wrong:
        raise OptionsError(wrong)
    return loaded[0], loaded[1]


def read(file: Path) -> bytes:
    """A file, or standard input for `-`. Raise OptionsError that names it."""
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise OptionsError([Problem("", f"{file}: {error.strerror}")]) from error


def write(path: Path, text: str, force: bool) -> None:
    """Write a new file. Raise JobError when it is there already, unless `force`."""
    try:
        with path.open("w" if force else "x") as stream:
            stream.write(text)
    except FileExistsError as error:
        raise JobError(f"{path} is there already; replace it with --force") from error


def _as_dicts(problems: Iterable[Problem]) -> list[dict[str, str]]:
    return [asdict(problem) for problem in problems]


def _print_notices(found: Iterable[Problem]) -> None:
    for notice in found:
        click.echo(f"notice: {notice}", err=True)


def _diff_json(found: Difference) -> dict[str, Any]:
    return {
        "changed": [asdict(item) for item in found.changed],
        "refused": _as_dicts(found.refused),
        "restarted": [asdict(item) for item in found.restarted],
        "added": list(found.added),
        "removed": list(found.removed),
    }


def _diff_lines(found: Difference) -> Iterator[str]:
    if not found.changed:
        yield "nothing changes"
        return
    for item in found.changed:
        yield f"{item.path}: {json.dumps(item.old)} -> {json.dumps(item.new)}"
    if found.refused:
        yield from (f"refused: {problem}" for problem in found.refused)
        return
    yield from (f"restart {item.task}: {item.reason}" for item in found.restarted)
    yield from (f"add {name}" for name in found.added)
    yield from (f"remove {name}" for name in found.removed)
    if not (found.restarted or found.added or found.removed):
        yield "no task restarts"
