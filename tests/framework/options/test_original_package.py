"""The options of the DC/OS package beta-tensorflow 0.2.0-1.5.0, as mesosphere/universe has them."""

import json
from pathlib import Path

import pytest

from tf_scheduler.options.generate import config_schema
from tf_scheduler.options.load import load
from tf_scheduler.options.schema.document import OPTIONS
from tf_scheduler.package.options_check import option_paths

ORIGINAL = json.loads((Path(__file__).parent / "beta_tensorflow.json").read_text())
OURS = dict(option_paths(config_schema()))
#: What the reference writes where the original schema gives no default.
NO_DEFAULT = "<none>"

#: As in the tutorials of its time.
HELLO = {
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
def test_an_option_keeps_its_name_type_and_default(option):
    """Its users' files mean the same here."""
    ours = OURS[option["path"]]

    assert option.get("type", "string") == ours["type"]
    assert option["default"] == ours.get("default", NO_DEFAULT)
    assert option.get("enum") == ours.get("enum")
    assert option.get("media") == ours.get("media")


def test_what_it_requires_is_required():
    """The defaults fill it: the lists are told to forms only."""
    schema = config_schema()["properties"]
    required = {f"{section}.{name}" for section, entry in schema.items() for name in entry.get("required", ())}

    assert {option["path"] for option in ORIGINAL if option["required_in_parent"]} <= required


def test_one_of_its_options_files_is_taken():
    """An empty job_context stands for {}."""
    spec = load(json.dumps(HELLO).encode(), "helloworld.json")

    assert ("helloworld", "source", "{}") == (spec.program.name, spec.program.path, spec.program.context)
    assert [("ps", 1), ("worker", 2)] == [(job.kind.value, job.count) for job in spec.jobs]
    assert {""} == {job.image for job in spec.jobs}


def test_its_own_images_stand_for_none():
    """Our executor does not run in them; any other is used."""
    images = {"tf_image": "me/tf", "gpu_tf_image": "me/tf-gpu"}
    document = {**HELLO, "service": {**HELLO["service"], **images}, "gpu_worker": {"count": 1}}

    spec = load(json.dumps({**document, "parameter_server": {"count": 1, "image": "me/ps"}}).encode(), "-")

    assert {"parameter_server": "me/ps", "worker": "me/tf", "gpu_worker": "me/tf-gpu"} == {
        job.section: job.image for job in spec.jobs
    }


def test_options_of_which_nothing_is_left_say_so():
    """None of its options is without an effect in silence."""
    silent = {"worker.port", "worker.disk_type", "service.mesos_api_version"}
    told = {
        str(option) for option in OPTIONS if "Not used yet: " in option.description or "no effect" in option.description
    }

    assert silent <= told
