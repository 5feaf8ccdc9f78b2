"""`kind: tensorflow` of krallistic/tensorflow-operator, which became TFJob -> options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from .amounts import command_line, whole
from .mapping import Deed, Put, Row, Spot, nothing, to, walk
from .shape import flag, table, take_name, text, words


def _is_flag(value: Any, _spot: Spot) -> Iterator[Deed]:
    """`convert` reads it."""
    flag(value)
    yield from ()


def _are_words(value: Any, _spot: Spot) -> Iterator[Deed]:
    words(value, "additional_args")
    yield from ()


ROWS = (
    Row("apiVersion", (), "", nothing),
    Row("kind", (), "tensorflow", nothing),
    Row("metadata.name", ("service.name",), "lower case, dashes", take_name),
    Row("metadata.namespace", (), "use a folder in service.name, such as team/mnist"),
    Row("spec.worker_nodes", ("worker.count",), "", to("worker", "count", as_=whole)),
    Row("spec.worker_count", ("worker.count",), "", to("worker", "count", as_=whole)),
    Row("spec.ps_nodes", ("parameter_server.count",), "", to("parameter_server", "count", as_=whole)),
    Row("spec.ps_count", ("parameter_server.count",), "", to("parameter_server", "count", as_=whole)),
    Row(
        "spec.image",
        ("service.tf_image", "service.gpu_tf_image"),
        "",
        lambda value, _: [Put(("service", name), text(value)) for name in ("tf_image", "gpu_tf_image")],
    ),
    Row("spec.port", (), "ports come from offers"),
    Row("spec.gpu_worker", ("gpu_worker.count",), "true: the workers become gpu_worker, with one GPU each", _is_flag),
    Row("spec.additional_args", ("service.command",), "after the program, which `--command` names", _are_words),
    Row(
        "spec.tensorboard.active",
        ("service.use_tensorboard",),
        "",
        to("service", "use_tensorboard", as_=flag),
    ),
    Row("spec.tensorboard.folder", ("service.checkpoint_dir",), "", to("service", "checkpoint_dir", as_=text)),
)
#: What that operator appended to every command.
_OPERATOR_FLAGS = "--job-name={job_name} --task-index={task_index} --ps-tasks={ps_hosts} --worker-tasks={worker_hosts}"


def convert(document: Mapping[str, Any], program: str) -> Iterator[Deed]:
    """All of one. `program`: as of TFJobs."""
    spec = table(document.get("spec"))
    if spec.get("gpu_worker") is not True:
        yield from walk(ROWS, document, Spot(""))
    else:
        for deed in walk(ROWS, document, Spot("")):
            counts = isinstance(deed, Put) and deed.path == ("worker", "count")
            yield replace(deed, path=("gpu_worker", "count")) if isinstance(deed, Put) and counts else deed
    if program:
        parts = [program, command_line(_more(spec)), _OPERATOR_FLAGS]
        yield Put(("service", "command"), " ".join(part for part in parts if part))


def _more(spec: Mapping[str, Any]) -> list[str]:
    """Of what is no list of words its row tells."""
    try:
        return words(spec.get("additional_args"), "additional_args")
    except ValueError:
        return []
