"""`dcos-tensorflow convert`: job files of other systems -> options.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from tf_scheduler.cli.common.output import json_option
from tf_scheduler.convert.conversion import Conversion, InvalidConversionError
from tf_scheduler.convert.conversion import convert_job_file as converted
from tf_scheduler.convert.tables import Note
from tf_scheduler.errors import OptionsError, Problem
from tf_scheduler.model.spec import Strategy

from .options import file_type, read, write


@click.command()
@click.argument("file", type=file_type)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the options file there.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option("--command", "program", default="", help="What containers run that do not say it: 'python train.py'.")
@click.option(
    "--strategy", type=click.Choice([one.value for one in Strategy]), help="service.strategy; default: a guess."
)
@json_option
def convert(file: Path, output: Path | None, force: bool, program: str, strategy: str | None, as_json: bool) -> None:
    """Make an options file of FILE: Kubeflow's TFJob or PyTorchJob, TonY's tony.xml, or options of beta-tensorflow.

    What cannot be taken along is told on standard error, by its name; nothing is left out in silence. docs/migrate has
    the tables. FILE may be - for standard input.
    """
    try:
        found = converted(read(file), "standard input" if str(file) == "-" else str(file), program, strategy or "")
    except InvalidConversionError as error:
        if as_json:
            raise OptionsError(
                [*error.problems, *(Problem(one.path, one.message) for one in error.warnings)]
            ) from error
        _warn(error.warnings)
        raise
    text = json.dumps(found.options, indent=2) + "\n"
    if output is not None:
        write(output, text, force)
    if as_json:
        click.echo(json.dumps(_as_json(found), indent=2))
        return
    _warn(found.warnings)
    click.echo(text if output is None else f"wrote {output}", nl=output is not None)


def _warn(warnings: Sequence[Note]) -> None:
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)


def _as_json(found: Conversion) -> dict[str, object]:
    return {"kind": found.kind.value, "options": found.options, "warnings": [asdict(one) for one in found.warnings]}
