"""What is wrong with options does not keep a service from being taken down."""

import pytest

from tf_scheduler.errors import OptionsError
from tf_scheduler.options.load import load_lenient, resolve
from tf_scheduler.options.spec import to_spec

RIGHT = {"service": {"name": "dev/digits", "command": "x"}, "mesos": {"master": "zk://a:2181/mesos"}}


def test_right_options_are_as_they_are():
    """And nothing is told."""
    assert (resolve(RIGHT), ()) == load_lenient(RIGHT, {})


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"api": {"write_token": "no source"}}, ["api.write_token"]),
        ({"api": {"certificate_file": "a.pem"}}, ["api.key_file"]),
        ({"worker": {"count": "two", "cpu": 1}}, ["worker.count", "worker.cpu"]),
        ({"worker": 7}, ["worker"]),
        ({"secrets": [{"source": "nowhere:x", "env": "A"}]}, ["secrets.0.source"]),
        ({"secrets": [{"source": "vault:a/b#c", "env": "A"}]}, ["vault.address"]),
        ({"service": {"name": "dev/digits"}}, ["parameter_server.command", "worker.command"]),
        ({"service": {"name": "dev/digits", "strategy": "parameter_server", "command": "x"}}, ["chief.count"]),
    ],
)
def test_what_is_wrong_is_left_out_and_told(wrong, told):
    """What makes the service the one that it is stays."""
    options, problems = load_lenient({**RIGHT, **wrong}, {})

    assert set(told) <= {problem.path for problem in problems}
    assert ("dev/digits", "zk://a:2181/mesos") == (to_spec(options).name, options["mesos"]["master"])


@pytest.mark.parametrize(
    "wrong", [{"service": {"name": "No Name", "command": "x"}}, {"tls": {"key_file": "k"}}, {"mesos": {"master": 7}}]
)
def test_what_says_which_service_it_is_has_to_be_right(wrong):
    """Another one could be taken down, or this one without that anybody heard of it."""
    with pytest.raises(OptionsError):
        load_lenient({**RIGHT, **wrong}, {})
