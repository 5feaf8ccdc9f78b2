"""What a user should know of valid options: which have no effect, and what else is no mistake but a surprise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tf_scheduler.errors import Problem
from tf_scheduler.model.policy import Then

from .fields import Environment
from .sections.jobs import JOBS
from .tree import OPTIONS

Document = Mapping[str, Any]
_FOLDER = "CHECKPOINT_DIR"


def notices(document: Document, options: Document) -> list[Problem]:
    """`document`: as it was given; `options`: the same, resolved. In the order of the schema."""
    return [notice for rule in _RULES for notice in rule(document, options)]


def without_effect(options: Document) -> Iterator[Problem]:
    """Options that are set to something, and whose value does not matter, with the reason."""
    for option in OPTIONS:
        if option.value(options) == option.default:
            continue
        if reason := option.said("obsolete"):
            yield Problem(str(option), f"has no effect: {reason}")


def options_without_effect_are_told(_: Document, options: Document) -> Iterator[Problem]:
    return without_effect(options)


def dcos_installs_environments_only_as_lists(document: Document, _: Document) -> Iterator[Problem]:
    for option in OPTIONS:
        if isinstance(option.field, Environment) and isinstance(_given(document, option.path), Mapping):
            yield Problem(
                str(option), 'must be a list of {"name", "value"} for `dcos package install`, which takes no object'
            )


def a_key_in_the_options_can_be_read_in_the_marathon_app(_: Document, options: Document) -> Iterator[Problem]:
    service = options["service"]
    if service["gcs_key"] and service["use_gcs_key_secret"]:
        yield Problem("service.use_gcs_key_secret", "has no effect: service.gcs_key is set")
    if service["gcs_key"]:
        yield Problem("service.gcs_key", "can be read by whoever may see the Marathon app; a secret is safer")


def a_job_beside_the_options_is_found_only_here(_: Document, options: Document) -> Iterator[Problem]:
    url = options["service"]["job_url"]
    if url and "://" not in url and not url.startswith("/"):
        yield Problem("service.job_url", f"{url} is found by `local run` only; agents of a cluster need an address")


def who_is_kept_is_there(_: Document, options: Document) -> Iterator[Problem]:
    if options["finish"]["then"] == Then.KEEP_TENSORBOARD.value and not options["service"]["use_tensorboard"]:
        yield Problem("finish.then", "keeps nothing: there is no TensorBoard without service.use_tensorboard")


def tensorboard_needs_a_folder_to_read(_: Document, options: Document) -> Iterator[Problem]:
    service = options["service"]
    if service["use_tensorboard"] and not (service["checkpoint_dir"] or service["shared_filesystem"]):
        yield Problem("service.use_tensorboard", "shows nothing without service.checkpoint_dir")


def tasks_that_start_again_go_on_from_a_folder_that_all_reach(_: Document, options: Document) -> Iterator[Problem]:
    """A task that is launched elsewhere does not find the checkpoint that it is to go on from."""
    service = options["service"]
    folder = service["checkpoint_dir"] or service["shared_filesystem"]
    tasks = sum(options[section]["count"] for section in JOBS)
    if "://" in folder or tasks < 2 or options["mesos"]["master"].startswith("127."):
        return
    told = f"{folder} must be the same folder on every agent, such as an NFS mount; else tasks that move start anew"
    if folder and not folder.startswith("/"):
        told = f"{folder} is below each task's own working directory, where nobody else finds it: begin it with /"
    if not folder:
        told = f"is empty: {_FOLDER}, which a command has, is not set on a cluster then (`local run` sets it)"
    if folder or any(_FOLDER in options[section]["command"] for section in ("service", *JOBS)):
        yield Problem("service.checkpoint_dir", told)


_RULES: tuple[Callable[[Document, Document], Iterator[Problem]], ...] = (
    options_without_effect_are_told,
    dcos_installs_environments_only_as_lists,
    a_key_in_the_options_can_be_read_in_the_marathon_app,
    a_job_beside_the_options_is_found_only_here,
    tensorboard_needs_a_folder_to_read,
    who_is_kept_is_there,
    tasks_that_start_again_go_on_from_a_folder_that_all_reach,
)


def _given(document: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        document = document.get(name) if isinstance(document, Mapping) else None
    return document
