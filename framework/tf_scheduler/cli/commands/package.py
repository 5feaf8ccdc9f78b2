"""`dcos-tensorflow package`: what DC/OS installs, checked, rendered and built."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from dcos_command.main import Group
from tf_scheduler.cli.common.options_file import read_bytes
from tf_scheduler.cli.common.output import json_switch
from tf_scheduler.options.load import parse
from tf_scheduler.package import universe
from tf_scheduler.package.render import render_app
from tf_scheduler.package.sources import PACKAGE_FOLDER, PackageSources, read_sources
from tf_scheduler.package.validate import validate as problems_of
from tf_scheduler.zipapp_builder import build_bundle

sources_option = click.option(
    "--sources",
    type=click.Path(file_okay=False, path_type=Path),
    default=PACKAGE_FOLDER,
    show_default="package/ of the checkout, or what came with the wheel",
    help="The folder of package.json, config.json, resource.json and marathon.json.mustache.",
)
url_option = click.option(
    "--artefacts-url",
    "--artifacts-url",
    "url",
    default=universe.PLACEHOLDER_URL,
    show_default=True,
    help="Where you publish the artefacts; they are expected in a folder below it that is named after the version.",
)


@click.group(cls=Group)
def package() -> None:
    """The DC/OS package: its rules, its Marathon app, its repository."""


@package.command()
@sources_option
@json_switch('Print a JSON list of {"path", "message"}.')
def validate(sources: Path, as_json: bool) -> None:
    """Check the package's sources against the rules of the Universe and our own.

    Exit code 0, or 1 with one line per problem.
    """
    found = problems_of(read_sources(sources))
    if as_json:
        click.echo(json.dumps([{"path": problem.path, "message": problem.message} for problem in found], indent=2))
    else:
        click.echo("\n".join(str(problem) for problem in found) or f"{sources} is a valid package")
    sys.exit(1 if found else 0)


@package.command()
@click.option("--options", type=click.Path(path_type=Path), help="Options file. Default: no options.")
@click.option("--app-id", help="As of `dcos package install --app-id`.")
@sources_option
@url_option
def render(options: Path | None, app_id: str | None, sources: Path, url: str) -> None:
    """Print the Marathon app that DC/OS makes of the package with these options.

    You can post it to any Marathon: its labels tell a DC/OS cluster, if there is one, that it is this package.
    """
    app = render_app(_entry(read_sources(sources), url), _options(options), url, app_id)
    click.echo(json.dumps(app, indent=2))


@package.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Folder to write: the repository, and below artefacts/ what it points to.",
)
@click.option("--no-artefacts", is_flag=True, help="Build the repository only.")
@sources_option
@url_option
def build(out: Path, no_artefacts: bool, sources: Path, url: str) -> None:
    """Build the package repository and the artefacts, and print the artefacts' sha256.

    Publish artefacts/ at ARTEFACTS_URL/<version>/ and one of universe-v3.json (DC/OS up to 1.9), -v4 (up to 1.11), -v5
    anywhere; then: dcos package repo add --index=0 tensorflow <its URL>
    """
    universe.build_universe(read_sources(sources), out, url)
    for artefact in () if no_artefacts else universe.build_files(out, sources):
        click.echo(f"{artefact.sha256}  {artefact.path}")
    click.echo(f"built {out}", err=True)


@package.command()
@sources_option
def generate(sources: Path) -> None:
    """Write config.json, and the options in marathon.json.mustache, anew from the options' schema."""
    changed = universe.generate_sources(sources)
    click.echo("\n".join(f"wrote {sources / name}" for name in changed) or f"{sources} is current")


def _entry(sources: PackageSources, url: str) -> dict[str, Any]:
    (entry,) = universe.packages(universe.check_and_fill(sources, url))
    return entry


def _options(path: Path | None) -> dict[str, Any]:
    return {} if path is None else parse(read_bytes(path), str(path))


# --- executor
# `dcos-tensorflow executor`: the file that agents run.


@click.group(cls=Group)
def executor() -> None:
    """The executor, which runs on the agents."""


@executor.command("build")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write. Default: a file in the cache folder, named after its content.",
)
def executor_build(output: Path | None) -> None:
    """Build the executor's bundle, one file for every Python from 3.8 on, and print its path.

    Agents fetch it from wherever you put it: a web server, HDFS, a shared folder. The option executor.url says where.
    A bundle that is current already is left as it is.
    """
    click.echo(build_bundle(output))
