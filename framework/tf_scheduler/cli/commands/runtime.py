"""Commands `runtime`: environments with one TensorFlow each, for local runs."""

from __future__ import annotations

from dataclasses import asdict

import click

from dcos_command.main import Group
from tf_scheduler.cli.common.groups import examples
from tf_scheduler.cli.common.output import echo_json, echo_result, json_option
from tf_scheduler.runtimes import runtimes
from tf_scheduler.runtimes.catalogue import RuntimeRequest


@click.group(cls=Group)
@examples("runtime create tf221 --tensorflow 2.21", "runtime list")
def runtime() -> None:
    """Manage Python environments with one TensorFlow each.

    A local run uses the environment NAME if the option `python` of the service or a job has the value runtime:NAME.
    """


@runtime.command()
@examples("runtime create tf220 --tensorflow 2.20", "runtime create mine --package numpy --python 3.11")
@click.argument("name")
@click.option("--tensorflow", default="", metavar="VERSION", help="For example 2.20.0, or 2.20 (the newest 2.20.x).")
@click.option("--python", default="", metavar="VERSION", help="For example 3.11. Default: this command's Python.")
@click.option("--gpu", is_flag=True, help="Install CUDA.")
@click.option("--package", "others", multiple=True, metavar="REQUIREMENT", help="Additional package, in pip syntax.")
@click.option("--build", "builds", multiple=True, metavar="REQUIREMENT", help="Additional package, built from source.")
@json_option
def create(
    name: str, tensorflow: str, python: str, gpu: bool, others: tuple[str, ...], builds: tuple[str, ...], as_json: bool
) -> None:
    """Create the runtime NAME, unless it exists.

    Prints progress on standard error, and checks that the packages can be imported together. A failed attempt leaves
    no files.
    """
    request = RuntimeRequest(tensorflow, gpu, others, builds)
    result, made = runtimes.create_runtime(name, request, python, lambda line: click.echo(line, err=True))
    text = f"{result.name} {'is created' if made else 'already exists'}: {result.python}"
    echo_result({**asdict(result), "made": made}, f'{text}\nin options: "python": "runtime:{result.name}"', as_json)


@runtime.command("list")
@examples("runtime list")
@json_option
def list_(as_json: bool) -> None:
    """List complete runtimes."""
    complete = runtimes.list_runtimes()
    if as_json:
        echo_json([asdict(each) for each in complete])
        return
    if not complete:
        click.echo("There are no runtimes yet. Make one: dcos-tensorflow runtime create tf --tensorflow 2.21")
    for each in complete:
        click.echo(f"{each.name}: Python {each.version}, {' '.join(each.content)}: {each.python}")


@runtime.command()
@examples("runtime remove mine")
@click.argument("name")
def remove(name: str) -> None:
    """Remove the runtime NAME, even an incomplete one."""
    runtimes.remove_runtime(name)
    click.echo(f"{name} is removed")
