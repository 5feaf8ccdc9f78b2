"""`dcos-tensorflow convert`: convert job files of other systems to options files."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from dcos_command.command import echo, example_block
from tf_executor.contract.strategies import Strategy
from tf_scheduler.cli.common.folders import (
    UserPath,
    file_type,
    force_option,
    output_option,
    read,
    source_name,
)
from tf_scheduler.cli.common.output import echo_json, json_option, print_or_write
from tf_scheduler.cli.common.programs import program_files, program_folder, program_sources
from tf_scheduler.cli.local_run.fitting import fits_machine
from tf_scheduler.cli.local_run.new_options import suitable_python
from tf_scheduler.convert.conversion import KINDS, Conversion, InvalidConversionError, convert_job_file
from tf_scheduler.convert.local import localize, missing_programs
from tf_scheduler.convert.pod import ENDPOINT, MADE_UP, NOT_REQUESTED
from tf_scheduler.convert.tables import Note, command_line
from tf_scheduler.convert.tfjob import KEPT
from tf_scheduler.errors import JobError, OptionsError, Problem
from tf_scheduler.options.schema.service import RUNTIME_PREFIX
from tf_scheduler.runtimes.runtimes import find_runtime

_EXAMPLES = ("convert job.yaml -o options.json", "convert tony.xml --local --program train.py -o options.json")
_HELP = f"""Convert FILE to an options file.

FILE is {KINDS}, or - for standard input. A warning on standard error names each field that cannot be converted.
docs/how-to/migrate lists all fields.

{example_block("dcos-tensorflow", _EXAMPLES)}
"""


@click.command(help=_HELP)
@click.argument("file", type=file_type)
@output_option
@force_option
@click.option("--command", default="", help="Command for containers that have no command.")
@click.option("--strategy", type=click.Choice([one.value for one in Strategy]), help="Default: derived from jobs.")
@click.option("--local", is_flag=True, help="Fit the options to this machine. Default of -o: options.json.")
@click.option("--program", type=UserPath(exists=True), help="With --local: program, its folder or archive.")
@click.option("--python", default="", metavar="PYTHON", help="With --local: such as runtime:NAME. Default: derived.")
@json_option
def convert(
    file: Path,
    output: Path | None,
    force: bool,
    command: str,
    strategy: str | None,
    local: bool,
    program: Path | None,
    python: str,
    as_json: bool,
) -> None:
    if not local and (program or python):
        raise click.UsageError("--program and --python need --local")
    output = output or (Path("options.json") if local else None)
    data, request = read(file), None
    try:
        if local and output is not None:
            request = _Local(data, source_name(file), command, strategy or "", output.parent, program, python)
            result = request.convert()
        else:
            result = convert_job_file(data, source_name(file), command, strategy or "")
            result = replace(result, warnings=tuple(note for note in result.warnings if MADE_UP not in note.message))
    except InvalidConversionError as error:
        if as_json:
            notes = (Problem(note.path, note.message) for note in error.warnings)
            raise OptionsError([*error.problems, *notes]) from error
        _warn(error.warnings)
        raise
    run = [*request.steps, f"dcos-tensorflow local run {command_line([output])}"] if request else []
    if not as_json:
        _warn(result.warnings)
    print_or_write(result.options, output, force, quiet=as_json)
    if as_json:
        warnings = [asdict(note) for note in result.warnings]
        more = {"next": run} if run else {}
        echo_json({"kind": result.kind.value, "options": result.options, "warnings": warnings, **more})
        return
    for line in run:
        echo(f"next: {line}")


def _warn(warnings: Sequence[Note]) -> None:
    for warning in warnings:
        echo(f"warning: {warning}", err=True)


@dataclass(slots=True)
class _Local:
    """Conversion of one job file for this machine."""

    data: bytes
    source: str
    command: str
    strategy: str
    #: Folder of the options file, to which the path of the program is relative.
    folder: Path
    program: Path | None
    python: str
    #: Commands to run before the job.
    steps: tuple[str, ...] = ()

    def convert(self) -> Conversion:
        """Convert; ask for a missing program. Without a terminal, raises JobError."""
        programs = _python_files(self.program)
        try:
            result, notes = self._try(), tuple[Note, ...]()
        except InvalidConversionError as error:
            is_missing = any(one.path.endswith(".command") for one in error.problems)
            if not is_missing or self.command or len(programs) == 1:
                raise
            result, notes = None, error.warnings
        missing = ["command"] if result is None else missing_programs(result.options, os.path.exists)
        if result is not None and not missing:
            return result
        files = [name for name in missing if name != "command"]
        what = f"{', '.join(files)}: only in the image" if files else "the file names no program"
        what += f"; Python files of {self.program}: {', '.join(programs)}" if programs else ""
        is_choice = bool(programs) and not files
        if not sys.stdin.isatty():
            _warn(notes if result is None else result.warnings)
            remedy = "choose one with --command 'python FILE'" if is_choice else "pass its file, folder or archive with"
            raise JobError(f"{self.source}: {what}; {remedy}{'' if is_choice else ' --program PATH'}")
        echo(what, err=True)
        if is_choice:
            choice = click.prompt("program", type=click.Choice(programs), show_choices=False, err=True)
            self.command = f"python {command_line([choice])}"
        else:
            self.program = click.prompt("program", type=UserPath(exists=True), err=True)
        return self.convert()

    def _try(self) -> Conversion:
        programs = _python_files(self.program)
        # A file's own command has precedence in Kubeflow; in TonY, a program is used only where a command is missing.
        default = self.command or (
            f"python {command_line(programs)}" if len(programs) == 1 and b"<" not in self.data.lstrip()[:1] else ""
        )
        result = convert_job_file(self.data, self.source, default, self.strategy, self._adapt)
        # Here the sizes of all tasks are set, endpoints are omitted, and no task outlives the job.
        hidden = (NOT_REQUESTED, ENDPOINT, KEPT, *((MADE_UP,) if self.command else ()))
        notes = (note for note in result.warnings if not any(text in note.message for text in hidden))
        return replace(result, warnings=tuple(notes))

    def _adapt(self, options: dict[str, Any]) -> list[Note]:
        program = self.program
        if program and program.suffix == ".py" and program.is_file() and len(program_sources(program)) > 1:
            program = program.parent  # as `try` does
        path = os.path.relpath(program, self.folder) if program else ""
        notes, needed = localize(
            options, _python_files(self.program), path, fits_machine, self._sources, os.path.exists
        )
        if self.python.startswith(RUNTIME_PREFIX):
            find_runtime(self.python.removeprefix(RUNTIME_PREFIX))
        python, step = (self.python, "") if self.python else suitable_python(needed)
        self.steps = (step,) if step else ()
        if python:
            options["service"]["python"] = python
        return notes

    def _sources(self, scripts: Sequence[str]) -> dict[str, str]:
        """Return the sources of files of the program, and of the modules that they use."""
        if self.program is None:
            return {}
        with program_folder(self.program) as folder:
            files = [folder / script for script in scripts]
            sources = {path.name: program_sources(path) for path in files if path.is_file()}
        return {name: source for each in sources.values() for name, source in each.items()}


def _python_files(program: Path | None) -> list[str]:
    """Return the file of a program, or the Python files of its folder or archive."""
    return sorted(name for name in program_files(program) if name.endswith(".py")) if program else []
