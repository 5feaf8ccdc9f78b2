"""`dcos-tensorflow executor`: the file that agents run."""

from __future__ import annotations

from pathlib import Path

import click

from tf_scheduler.bundle import build_bundle


@click.group()
def executor() -> None:
    """The executor, which runs on the agents."""


@executor.command()
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write. Default: a file in the cache folder, named after its content.",
)
def build(output: Path | None) -> None:
    """Build the executor's bundle, one file for every Python from 3.8 on, and print its path.

    Agents fetch it from wherever you put it: a web server, HDFS, a shared folder. The option executor.url says where.
    A bundle that is current already is left as it is.
    """
    click.echo(build_bundle(output))
