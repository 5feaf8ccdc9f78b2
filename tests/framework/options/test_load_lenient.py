"""Options for an uninstall: invalid ones are dropped, except identifying ones."""

import pytest

from tf_scheduler.errors import OptionsError
from tf_scheduler.options.load import load_lenient, resolve
from tf_scheduler.options.spec import to_spec

RIGHT = {"service": {"name": "dev/digits", "command": "x"}, "mesos": {"master": "zk://a:2181/mesos"}}


def test_valid_options_are_unchanged() -> None:
    assert (resolve(RIGHT), ()) == load_lenient(RIGHT, {})


@pytest.mark.parametrize(
    ("wrong", "reported"),
    [
        ({"api": {"write_token": "no source"}}, ["api.write_token"]),
        ({"api": {"write_token": "env:W", "users": [{"name": "ann"}]}}, ["api.users.0.token"]),
        ({"api": {"certificate_file": "a.pem"}}, ["api.key_file"]),
        ({"worker": {"count": "two", "cpu": 1}}, ["worker.count", "worker.cpu"]),
        ({"worker": 7}, ["worker"]),
        ({"secrets": [{"source": "nowhere:x", "env": "A"}]}, ["secrets.0.source"]),
        ({"secrets": [{"source": "vault:a/b#c", "env": "A"}]}, ["vault.address"]),
        ({"service": {"name": "dev/digits", "job_url": "a"}}, ["worker.command"]),
        (
            {"service": {"name": "dev/digits", "strategy": "parameter_server", "command": "x"}, "chief": {"count": 0}},
            ["chief.count"],
        ),
    ],
)
def test_invalid_options_are_dropped_and_reported(wrong, reported) -> None:
    """Options that identify the service stay."""
    options, problems = load_lenient({**RIGHT, **wrong}, {})

    assert set(reported) <= {problem.path for problem in problems}
    assert ("dev/digits", "zk://a:2181/mesos") == (to_spec(options).name, options["mesos"]["master"])


@pytest.mark.parametrize(
    "wrong", [{"service": {"name": "No Name", "command": "x"}}, {"tls": {"key_file": "k"}}, {"mesos": {"master": 7}}]
)
def test_identity_options_must_be_valid(wrong) -> None:
    """Otherwise another service could be removed."""
    with pytest.raises(OptionsError):
        load_lenient({**RIGHT, **wrong}, {})
