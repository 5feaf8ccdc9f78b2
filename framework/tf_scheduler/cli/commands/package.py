"""Commands `package` and `executor`: build what DC/OS installs and agents run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from dcos_command.command import Group, echo, examples
from tf_scheduler.cli.common.folders import UserPath, named_file_type, read_bytes
from tf_scheduler.cli.common.output import echo_json, echo_result, json_switch
from tf_scheduler.options.environment import without_defaults
from tf_scheduler.options.load import parse
from tf_scheduler.package import universe
from tf_scheduler.package.artefacts import MINIMUM_PYTHON, can_read_vault, scheduler_python
from tf_scheduler.package.render import render_app
from tf_scheduler.package.sources import PACKAGE_FOLDER, read_sources
from tf_scheduler.package.validate import validate as problems_of
from tf_scheduler.secrets.sources import MISSING_VAULT
from tf_scheduler.zipapp_builder import build_bundle

sources_option = click.option(
    "--sources",
    type=UserPath(file_okay=False),
    default=PACKAGE_FOLDER,
    show_default="package/ of the checkout, or of the wheel",
    help="Folder of package.json and the other sources.",
)


def _check_url(_context: click.Context, _parameter: click.Parameter, url: str) -> str:
    """Reject an invalid URL, and warn if the URL is the placeholder."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise click.BadParameter(f"{url!r} is not an http:// or https:// address with a host")
    if url == universe.PLACEHOLDER_URL:
        echo(f"warning: without --artefacts-url all addresses in the package are placeholders at {url}", err=True)
    return url


url_option = click.option(
    "--artefacts-url",
    "--artifacts-url",
    "url",
    metavar="URL",
    default=universe.PLACEHOLDER_URL,
    show_default=True,
    callback=_check_url,
    help="URL of the published artefacts, without the version.",
)


@click.group(cls=Group)
@examples("package validate", "package build --out out --artefacts-url https://files.example.com")
def package() -> None:
    """Validate, render and build the DC/OS package."""


@package.command()
@examples("package validate")
@sources_option
@json_switch('Print a JSON list of {"path", "message"}.')
def validate(sources: Path, as_json: bool) -> None:
    """Check the package against the rules of the Universe.

    Prints a line for each problem.

    Exit code: 0 valid, 1 invalid.
    """
    problems = problems_of(read_sources(sources))
    text = "\n".join(str(problem) for problem in problems) or f"{sources} is a valid package"
    echo_result([{"path": problem.path, "message": problem.message} for problem in problems], text, as_json)
    sys.exit(1 if problems else 0)


@package.command()
@examples("package render --options options.json --digests out/artefacts/SHA256SUMS --changed")
@click.option("--options", type=named_file_type, metavar="FILE", help="Options file. Default: no options.")
@click.option("--app-id", metavar="ID", help="Id of the app, as in `dcos package install --app-id`.")
@click.option(
    "--digests",
    type=UserPath(dir_okay=False),
    metavar="FILE",
    help="SHA256SUMS of the artefacts, which the app then checks.",
)
@click.option("--changed", is_flag=True, help="Leave out variables of options that have their default.")
@sources_option
@url_option
def render(
    options: Path | None, app_id: str | None, digests: Path | None, changed: bool, sources: Path, url: str
) -> None:
    """Print the Marathon app of the package with options.

    DC/OS launches this app, and any Marathon accepts it. The app's labels identify the package on a DC/OS cluster.
    """
    digest_of = {} if digests is None else universe.read_digests(digests)
    filled = universe.check_and_fill(read_sources(sources), url, digest_of)
    document: dict[str, Any] = {} if options is None else parse(read_bytes(options), str(options))
    app = render_app(filled, document, url, app_id)
    echo_json({**app, "env": without_defaults(app["env"])} if changed else app)


@package.command()
@examples("package build --out out --artefacts-url https://files.example.com")
@click.option(
    "--out", type=UserPath(file_okay=False), required=True, help="Folder to write the repository and artefacts/ to."
)
@click.option("--no-artefacts", is_flag=True, help="Build the repository only.")
@sources_option
@url_option
def build(out: Path, no_artefacts: bool, sources: Path, url: str) -> None:
    """Build package repository and artefacts; print their sha256.

    Publish artefacts/ at ARTEFACTS_URL/<version>/. Publish universe-v4.json (DC/OS 1.10 and 1.11) or -v5 (from 1.12) at
    any URL. Then run: dcos package repo add --index=0 tensorflow <URL>
    """
    files, built = read_sources(sources), []
    python = MINIMUM_PYTHON if no_artefacts else scheduler_python()
    universe.check_and_fill(files, url, python=python)  # an invalid package is not built
    for artefact in () if no_artefacts else universe.build_files(out, sources):
        echo(f"{artefact.sha256}  {artefact.path}")
        built.append(artefact)
    if built and not can_read_vault():
        echo(f"notice: the scheduler's file is built without hvac; {MISSING_VAULT}", err=True)
    universe.build_universe(files, out, url, {artefact.path.name: artefact.sha256 for artefact in built}, python)
    if no_artefacts:
        echo("notice: without artefacts the package does not check their digests", err=True)
    echo(f"built {out}", err=True)


@package.command()
@examples("package generate")
@sources_option
def generate(sources: Path) -> None:
    """Update config.json and marathon.json.mustache.

    Both files are generated from the schema of the options.
    """
    changed = universe.generate_sources(sources)
    echo("\n".join(f"wrote {sources / name}" for name in changed) or f"{sources} is up to date")


@click.group(cls=Group)
@examples("executor build --output executor.pyz")
def executor() -> None:
    """Build the executor, which runs on the agents."""


@executor.command("build")
@examples("executor build --output executor.pyz")
@click.option("--output", type=UserPath(dir_okay=False), help="File to write. Default: a file in the cache folder.")
def executor_build(output: Path | None) -> None:
    """Build the executor's bundle and print its path.

    The bundle is one file that runs on Python 3.8 or newer. Agents fetch it from executor.url, for example from a web
    server, HDFS or a shared folder. An up-to-date bundle is not rewritten.
    """
    echo(build_bundle(output))
