"""Options of the original package: unchanged, and what is obsolete is told."""

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


def test_what_is_known_stays_as_it_is_and_the_rest_is_told():
    """`worker.cpu` was ignored by the package in silence; volumes of Portworx are none of ours."""
    found = convert_job_file(json.dumps(ORIGINAL).encode(), "options.json")

    assert ORIGINAL["service"] == found.options["service"]
    assert {"count": 2, "port": 2300} == found.options["worker"]
    assert {"count": 1} == found.options["parameter_server"]
    told = {warning.path: warning.message for warning in found.warnings}
    assert "is no option" in told["worker.cpu"]
    assert "Portworx" in told["worker.portworx_volume_name"]
    assert "is parameter_server.count now" == told["ps.count"]
    assert "has no effect: ports come from offers" in told["worker.port"]
    assert "service.mesos_api_version" in told


def test_a_section_that_nobody_knows_is_left_out_and_told():
    """Those that are known are enough to know the file by."""
    found = convert_job_file(json.dumps({**ORIGINAL, "node": {"count": 2}, "hdfs": {}}).encode(), "options.json")

    assert "node" not in found.options
    assert "is no option" in {warning.path: warning.message for warning in found.warnings}["node.count"]
