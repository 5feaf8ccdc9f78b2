"""Options of the DC/OS package beta-tensorflow 0.2.0-1.5.0 (mesosphere/universe)."""

from typing import Any

import pytest

from kit.options import NO_DEFAULT, ORIGINAL, load_spec
from tf_scheduler.options.generate import config_schema
from tf_scheduler.options.schema.document import OPTIONS
from tf_scheduler.package.options_check import option_paths

OURS = dict(option_paths(config_schema()))

#: From the tutorials of the original package.
HELLO: dict[str, Any] = {
    "service": {
        "name": "helloworld",
        "job_url": "https://example.com/source/helloworld.zip",
        "job_path": "source",
        "job_name": "helloworld",
        "job_context": "",
    },
    "worker": {"count": 2, "placement_constraint": '[["hostname", "UNIQUE"]]', "port": 2222, "disk_type": "MOUNT"},
    "parameter_server": {"count": 1, "port": 2223},
    "gpu_worker": {"count": 0},
}


@pytest.mark.parametrize("option", ORIGINAL, ids=lambda option: option["path"])
def test_original_option_is_unchanged(option) -> None:
    """Options files of its users keep their meaning."""
    ours = OURS[option["path"]]

    assert option.get("type", "string") == ours["type"]
    assert option["default"] == ours.get("default", NO_DEFAULT)
    assert option.get("enum") == ours.get("enum")
    assert option.get("media") == ours.get("media")


def test_original_required_options_stay_required() -> None:
    """Defaults fill them: `required` affects the DC/OS form only."""
    schema = config_schema()["properties"]
    required = {f"{section}.{name}" for section, entry in schema.items() for name in entry.get("required", ())}

    assert {option["path"] for option in ORIGINAL if option["required_in_parent"]} <= required


def test_original_options_file_is_accepted() -> None:
    """An empty job_context means {}."""
    spec = load_spec(HELLO)

    assert ("helloworld", "source", "{}") == (spec.program.name, spec.program.path, spec.program.context)
    assert [("ps", 1), ("worker", 2)] == [(job.kind.value, job.count) for job in spec.jobs]
    assert {""} == {job.image for job in spec.jobs}


def test_original_images_mean_no_image() -> None:
    """The executor cannot run in them."""
    images = {"tf_image": "me/tf", "gpu_tf_image": "me/tf-gpu"}
    document = {**HELLO, "service": {**HELLO["service"], **images}, "gpu_worker": {"count": 1}}

    spec = load_spec({**document, "parameter_server": {"count": 1, "image": "me/ps"}})

    assert {"parameter_server": "me/ps", "worker": "me/tf", "gpu_worker": "me/tf-gpu"} == {
        job.section: job.image for job in spec.jobs
    }


def test_obsolete_original_options_have_reason() -> None:
    silent = {"worker.port", "worker.disk_type", "service.mesos_api_version"}
    ineffective = {
        str(option) for option in OPTIONS if "Not used yet: " in option.description or "no effect" in option.description
    }

    assert silent <= ineffective
