"""Commands `runtime` and `local image`: environments and images for local runs."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from dcos_command.command import Group, echo, examples
from mesos_local import images
from tf_executor.contract.text import format_size
from tf_scheduler.cli.common.output import echo_json, echo_result, json_option
from tf_scheduler.errors import JobError
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
    result, made = runtimes.create_runtime(name, request, python, lambda line: echo(line, err=True))
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
        echo("There are no runtimes yet. Make one: dcos-tensorflow runtime create tf --tensorflow 2.21")
    for each in complete:
        echo(f"{each.name}: Python {each.version}, {' '.join(each.content)}: {each.python}")


@runtime.command()
@examples("runtime remove mine")
@click.argument("name")
def remove(name: str) -> None:
    """Remove the runtime NAME, even an incomplete one."""
    runtimes.remove_runtime(name)
    echo(f"{name} is removed")


# --- images


@click.group(cls=Group)
@examples("local image build tensorflow", "local image list")
def image() -> None:
    """Manage images for local clusters with containers."""


@image.command()
@examples(
    "local image build tensorflow",
    "local image build team/tf220:2 --from tf220",
    "local image build pytorch --from pytorch.tar",
)
@click.argument("name")
@click.option(
    "--from",
    "source",
    default="",
    metavar="RUNTIME|FOLDER|ARCHIVE",
    help="A runtime, a root file system, or an archive (docker save, OCI). Default: the Python of this command.",
)
@json_option
def build(name: str, source: str, as_json: bool) -> None:
    """Make the image NAME, or replace it.

    The option `image` of a job selects it. An image of a runtime, or of this Python, also has a shell and the usual
    tools of this machine. Agents unpack a replaced image after the next `local up`.
    """
    path = images.image_path(name)
    with images.scratch_folder() as scratch:
        images.write_image(name, _source_image(source, scratch))
    size = path.stat().st_size
    result = {"name": name, "path": str(path), "bytes": size}
    echo_result(result, f'{name} is built: {format_size(size)}\nin options: "image": "{name}"', as_json)


def _source_image(source: str, scratch: Path) -> images.Image:
    path = Path(source)
    if source and path.is_dir():
        return images.read_folder(path, scratch)
    if source and path.is_file():
        return images.read_archive(path, scratch)
    try:
        python = runtimes.find_runtime(source).python if source else sys.executable
    except JobError as error:
        raise JobError(f"--from {source}: neither a folder nor an archive; {error}") from error
    return images.read_python(Path(python), scratch)


@image.command("list")
@examples("local image list")
@json_option
def list_images(as_json: bool) -> None:
    """List the images that were built."""
    images.remove_abandoned()
    names = images.image_names()
    for name in images.image_names(valid=False):
        echo(f"notice: {images.image_folder() / name}.tar is ignored: its name is not that of an image", err=True)
    if as_json:
        echo_json(names)
        return
    echo("\n".join(names) or "There are no images yet. Make one: dcos-tensorflow local image build tensorflow")


@image.command("remove")
@examples("local image remove mine")
@click.argument("name")
def remove_image(name: str) -> None:
    """Remove the image NAME."""
    if why := images.unknown_image(name):
        raise JobError(f"`{name}`: {why}")
    images.remove_image(name)
    echo(f"{name} is removed")
