"""`dcos-tensorflow runtime`: environments with one TensorFlow each, for the option `python` of local runs."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from dcos_command.main import Group
from tf_scheduler.cli.common.output import json_option
from tf_scheduler.runtimes import runtimes
from tf_scheduler.runtimes.catalogue import RuntimeRequest


@click.group(cls=Group)
def runtime() -> None:
    """Python environments with one TensorFlow each, by name.

    Options name one as `python`: runtime:NAME, for the service or for one job, in local runs.
    """


@runtime.command()
@click.argument("name")
@click.option("--tensorflow", default="", metavar="VERSION", help="2.20 (the newest 2.20.x) or 2.20.0.")
@click.option("--python", default="", metavar="VERSION", help="Such as 3.11; default: the Python that runs this.")
@click.option("--gpu", is_flag=True, help="With CUDA.")
@click.option("--package", "others", multiple=True, metavar="REQUIREMENT", help="Install this too; as pip takes it.")
@click.option(
    "--build",
    "builds",
    multiple=True,
    metavar="REQUIREMENT",
    help="Install this last, built of its sources against what the runtime has.",
)
@json_option
def create(
    name: str,
    tensorflow: str,
    python: str,
    gpu: bool,
    others: tuple[str, ...],
    builds: tuple[str, ...],
    as_json: bool,
) -> None:
    """Make the runtime NAME, or say that it is there. It is made whole, or not at all."""

    def begins() -> None:
        click.echo(f"making {name}; with TensorFlow or PyTorch it takes a minute or more", err=True)

    found, made = runtimes.create_runtime(name, RuntimeRequest(tensorflow, gpu, others, builds), python, begins)
    if as_json:
        click.echo(json.dumps({**asdict(found), "made": made}, indent=2))
        return
    click.echo(f"{found.name} {'is made' if made else 'is there already'}: {found.python}")
    click.echo(f'in options: "python": "runtime:{found.name}"')


@runtime.command("list")
@json_option
def list_(as_json: bool) -> None:
    """Those that are complete."""
    found = runtimes.list_runtimes()
    if as_json:
        click.echo(json.dumps([asdict(one) for one in found], indent=2))
    for one in found if not as_json else ():
        click.echo(f"{one.name}: Python {one.version}, {' '.join(one.content)}: {one.python}")


@runtime.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove the runtime NAME, also one that was left half-made."""
    runtimes.remove_runtime(name)
    click.echo(f"{name} is removed")
