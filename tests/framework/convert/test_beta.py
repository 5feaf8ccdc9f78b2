"""Conversion of options of the package beta-tensorflow."""

import json

from tf_scheduler.convert.conversion import convert_job_file

ORIGINAL = {
    "service": {
        "name": "hello",
        "job_url": "https://x.org/h.zip",
        "job_name": "hello",
        "mesos_api_version": "V0",
    },
    "worker": {"count": 2, "cpu": 1, "port": 2300, "portworx_volume_name": "x"},
    "ps": {"count": 1},
    "gpu_worker": {"count": 0},
}


def test_beta_options_are_unchanged_or_reported() -> None:
    """The package ignored `worker.cpu` silently."""
    result = convert_job_file(json.dumps(ORIGINAL).encode(), "options.json")

    assert ORIGINAL["service"] == result.options["service"]
    assert {"count": 2, "port": 2300} == result.options["worker"]
    assert {"count": 1} == result.options["parameter_server"]
    notes = {warning.path: warning.message for warning in result.warnings}
    assert "unknown option" in notes["worker.cpu"]
    assert "Portworx" in notes["worker.portworx_volume_name"]
    assert "renamed to parameter_server.count" == notes["ps.count"]
    assert "has no effect: tasks use ports from Mesos offers" in notes["worker.port"]
    assert "service.mesos_api_version" in notes


def test_unknown_section_is_omitted_and_reported() -> None:
    """The known sections identify the file."""
    result = convert_job_file(json.dumps({**ORIGINAL, "node": {"count": 2}, "hdfs": {}}).encode(), "options.json")

    assert "node" not in result.options
    assert "unknown option" in {warning.path: warning.message for warning in result.warnings}["node.count"]
