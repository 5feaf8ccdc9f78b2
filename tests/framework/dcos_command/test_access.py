"""Services that do not answer everybody."""

import ssl
import subprocess

import pytest

from builders import a_spec
from dcos_command.cluster import Cluster
from dcos_command.errors import CommandError
from live_api import LiveApi
from tf_scheduler.api.policy import Policy


@pytest.fixture
def api():
    with LiveApi(a_spec(name="dev/digits"), Policy(read_token="look", write_token="change")) as live:
        live.deploy()
        yield live


def test_without_a_token_it_is_said_how_to_give_one(own, dcos):
    """Also when it is the wrong one; behind DC/OS its own command logs in."""
    assert "wants a token; give one with --token or DCOS_TENSORFLOW_TOKEN" in own("plan", "list").err
    assert "does not take the token" in own("--token", "wrong", "plan", "list").err
    assert "dcos auth login" in dcos("plan", "list").err


def test_a_token_may_stand_before_and_after_the_command_and_in_the_environment(own, monkeypatch):
    """As the other options that all commands have."""
    assert 0 == own("--token", "look", "--json", "plan", "list").code
    assert 0 == own("plan", "list", "--token=look", "--json").code
    monkeypatch.setenv("DCOS_TENSORFLOW_TOKEN", "look")
    monkeypatch.setenv("DCOS_TENSORFLOW_JSON", "1")
    assert "deploy" in own("plan", "list").json


def test_a_token_that_may_only_read_is_told_so(own):
    """By the scheduler's own sentence: exit code 1."""
    refused = own("--token=look", "plan", "pause", "deploy")

    assert 1 == refused.code
    assert "read" in refused.err
    assert 0 == own("--token=change", "plan", "pause", "deploy").code


def test_a_certificate_of_ours_is_shown(tmp_path):
    """DCOS_TENSORFLOW_CERTIFICATE: the certificate and its key, in one file."""
    pem = tmp_path / "me.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=me"]
    subprocess.run([*command, "-keyout", pem, "-out", tmp_path / "c.pem"], check=True, capture_output=True)
    pem.write_text(pem.read_text() + (tmp_path / "c.pem").read_text())

    assert isinstance(Cluster("https://x", certificate=str(pem)).tls(), ssl.SSLContext)
    with pytest.raises(CommandError, match="cannot be read"):
        Cluster("https://x", certificate=str(tmp_path / "none")).tls()
