"""`dcos-tensorflow convert`: convert job files of other systems to options files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from tf_scheduler.cli.common.groups import examples
from tf_scheduler.cli.common.output import echo_json, json_option
from tf_scheduler.convert.conversion import InvalidConversionError, convert_job_file
from tf_scheduler.convert.tables import Note
from tf_scheduler.errors import OptionsError, Problem
from tf_scheduler.model.spec import Strategy

from .options import file_type, force_option, output_option, print_or_write, read, source_name


@click.command()
@examples("convert job.yaml -o options.json", "convert tony.xml --strategy parameter_server")
@click.argument("file", type=file_type)
@output_option
@force_option
@click.option(
    "--command", "program", default="", metavar="COMMAND", help="Command for containers that have no command."
)
@click.option("--strategy", type=click.Choice([one.value for one in Strategy]), help="Default: derived from jobs.")
@json_option
def convert(file: Path, output: Path | None, force: bool, program: str, strategy: str | None, as_json: bool) -> None:
    """Convert FILE to an options file.

    FILE is a TFJob or PyTorchJob of Kubeflow, a tony.xml of TonY, an options file of beta-tensorflow, or - for standard
    input. A warning on standard error names each field that cannot be converted. docs/migrate lists all fields.
    """
    try:
        result = convert_job_file(read(file), source_name(file), program, strategy or "")
    except InvalidConversionError as error:
        if as_json:
            notes = (Problem(note.path, note.message) for note in error.warnings)
            raise OptionsError([*error.problems, *notes]) from error
        _warn(error.warnings)
        raise
    if not as_json:
        _warn(result.warnings)
    print_or_write(result.options, output, force, quiet=as_json)
    if as_json:
        warnings = [asdict(note) for note in result.warnings]
        echo_json({"kind": result.kind.value, "options": result.options, "warnings": warnings})


def _warn(warnings: Sequence[Note]) -> None:
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
