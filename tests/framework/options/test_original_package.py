"""Options of the DC/OS package beta-tensorflow 0.2.0-1.5.0 (mesosphere/universe)."""

from typing import Any

import pytest

from kit.options import NO_DEFAULT, ORIGINAL, load_spec
from tf_scheduler.options.generate import config_schema
from tf_scheduler.options.load import resolve
from tf_scheduler.options.schema.document import OPTIONS
from tf_scheduler.options.warnings import find_warnings
from tf_scheduler.package.validate import option_paths

OURS = dict(option_paths(config_schema()))
#: Cosmos would add its default, which most strategies refuse; with the strategy of these files it is the same.
BY_STRATEGY = "parameter_server.count"

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
    omitted = resolve({"service": {"job_name": "a", "job_url": "b"}})["parameter_server"]["count"]
    default = omitted if option["path"] == BY_STRATEGY else ours.get("default", NO_DEFAULT)
    assert option["default"] == default
    assert option.get("enum") == ours.get("enum")
    assert option.get("media") == ours.get("media")


def test_original_required_options_stay_required() -> None:
    """Defaults fill them: `required` affects the DC/OS form only."""
    schema = config_schema()["properties"]
    required = {f"{section}.{name}" for section, entry in schema.items() for name in entry.get("required", ())}

    original = {option["path"] for option in ORIGINAL if option["required_in_parent"]}
    assert original - required == {BY_STRATEGY}


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


#: The options of the eight example files of dcos-tensorflow-tools; none names an image. Their programs are packed in
#: https://example.com instead. The last three are for GPUs.
PROGRAM = {"name": "e", "job_url": "https://example.com/e.zip", "job_path": "e/source", "job_name": "e", "user": "root"}
HDFS = {"shared_filesystem": "hdfs://default/e", "hdfs": {"config_uri": "http://example.com/v1/endpoints"}}
KDC = {"hostname": "kdc", "port": 2500}
KERBEROS = {"enabled": True, "kdc": KDC, "primary": "tf", "realm": "LOCAL", "keytab_secret": "__dcos_base64__keytab"}
EXAMPLES: dict[str, dict[str, Any]] = {
    "helloworld": {"service": {"job_context": ""}, "worker": {"count": 1}, "parameter_server": {"count": 1}},
    "mnist": {"service": {"job_context": '{"learning_rate":0.5}'}, "worker": {"count": 1}, "gpu_worker": {"count": 0}},
    "mnist-with-summaries": {
        "service": {"shared_filesystem": "hdfs://name-0/e", "use_tensorboard": True},
        "tensorboard": {"port": 6006, "cpus": 1, "mem": 1024},
    },
    "mnist-with-summaries-kerberized": {
        "service": {**HDFS, "security": {"kerberos": KERBEROS}, "use_tensorboard": True},
        "parameter_server": {"count": 1},
        "worker": {"count": 2},
    },
    "slim": {
        "service": {"use_gcs_key_secret": True},
        "worker": {"count": 0},
        "gpu_worker": {"count": 4, "gpus": 4, "cpus": 4, "mem": 20480, "disk": 4096, "disk_type": "ROOT"},
    },
    "gan": {"worker": {"count": 0}, "parameter_server": {"count": 0}, "gpu_worker": {"count": 1, "gpus": 1}},
    "two-gpu-benchmark": {"worker": {"count": 0, "port": 2222}, "gpu_worker": {"count": 1, "gpus": 2}},
    "six-gpu-benchmark": {"worker": {"count": 0}, "gpu_worker": {"count": 3, "gpus": 2, "mem": 5120}},
}


def image_notices(example: str, **service: str) -> list[str]:
    document = {**EXAMPLES[example], "service": {**PROGRAM, **EXAMPLES[example].get("service", {}), **service}}
    notices = find_warnings(document, resolve(document))
    return [notice.path for notice in notices if "means no image" in notice.message]


@pytest.mark.parametrize("example", EXAMPLES)
def test_default_image_that_means_none_warns(example: str) -> None:
    """Also if it is explicit, as in the files for earlier releases."""
    images = {"tf_image": "mesosphere/dcos-tensorflow:v1.3", "gpu_tf_image": "mesosphere/dcos-tensorflow:v1.3-gpu"}

    warned = image_notices(example)

    assert warned == image_notices(example, **images) != []
    assert ("service.gpu_tf_image" in warned) is (EXAMPLES[example].get("gpu_worker", {}).get("count", 0) > 0)
    for name in ("me/tensorflow", ""):
        assert [] == image_notices(example, **dict.fromkeys(images, name))
    assert [] == image_notices(example, python="/opt/tf/bin/python")


def test_obsolete_original_options_have_reason() -> None:
    silent = {"worker.port", "worker.disk_type", "service.mesos_api_version"}
    ineffective = {
        str(option) for option in OPTIONS if "Not used yet: " in option.description or "no effect" in option.description
    }

    assert silent <= ineffective
