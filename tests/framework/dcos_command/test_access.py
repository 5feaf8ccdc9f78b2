"""Authentication, TLS and the choice of the address."""

import json
import ssl
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from builders import a_spec
from dcos_command import transport
from dcos_command.client import ServiceClient
from dcos_command.errors import CommandError
from dcos_command.main import main
from dcos_command.transport import ClusterConnection
from live_api import LiveApi
from tf_scheduler.api.http.auth import Policy
from tf_scheduler.api.http.server import ApiServer, ServerTls


@pytest.fixture
def api():
    with LiveApi(a_spec(name="dev/digits"), Policy(read_token="look", write_token="change")) as live:
        live.deploy()
        yield live


def test_missing_or_wrong_token_names_the_remedy(own, dcos) -> None:
    """Behind DC/OS, too, where another login comes first."""
    assert "requires a token; pass an API token with --token or DCOS_TENSORFLOW_TOKEN" in own("plan", "list").err
    assert "rejected the token" in own("--token", "wrong", "plan", "list").err
    assert "requires a token; pass an API token with --token" in dcos("plan", "list", DCOS_ACS_TOKEN="a.b.c").err
    assert "rejected the token" in dcos("--token=wrong", "plan", "list").err
    assert "dcos config set tensorflow.token" in dcos("plan", "list").err
    assert "dcos config" not in own("plan", "list").err


def test_token_of_the_settings_is_the_last_choice(dcos, tmp_path: Path) -> None:
    """Python 3.8 has no TOML parser, so the project reads dcos.toml itself."""
    (tmp_path / "dcos.toml").write_text('[tensorflow]\ntoken = "look"\n')
    home = {"DCOS_DIR": str(tmp_path)}

    assert 0 == dcos("plan", "list", **home).code
    assert "rejected the token" in dcos("plan", "list", **home, DCOS_TENSORFLOW_TOKEN="wrong").err
    assert "rejected the token" in dcos("--token=wrong", "plan", "list", **home).err


def test_token_is_accepted_before_and_after_the_command(own, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 == own("--token", "look", "--json", "plan", "list").code
    assert 0 == own("plan", "list", "--token=look", "--json").code
    monkeypatch.setenv("DCOS_TENSORFLOW_TOKEN", "look")
    monkeypatch.setenv("DCOS_TENSORFLOW_JSON", "1")
    assert "deploy" in own("plan", "list").json


@pytest.mark.parametrize("program", ["dcos", "own"])
def test_url_wins_over_the_environment(program: str, request, api, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cluster is needed."""
    ask = request.getfixturevalue(program)
    where, none = ("--url", api.url, "--token", "look", "--name="), {"DCOS_URL": ""} if program == "dcos" else {}
    for words in ((*where, "tasks"), ("tasks", *where)):
        assert 0 == ask(*words, **none).code
    assert "rejected the token" in ask("--url", api.url, "--token=wrong", "--name=", "tasks", **none).err
    refused = ask("--url", "10.0.0.1", "plan", "list", **none)
    assert (2, True) == (refused.code, "must begin with http" in refused.err)


def test_sub_command_reads_url_and_token_variables(api, capsys: pytest.CaptureFixture[str]) -> None:
    """DC/OS' own token is sent to DC/OS only."""
    environment = {"DCOS_TENSORFLOW_URL": api.url, "DCOS_DIR": "/nowhere", "DCOS_ACS_TOKEN": "look"}

    assert 1 == main(["tensorflow", "plan", "list"], environment)
    assert "requires a token" in capsys.readouterr().err
    assert 0 == main(["tensorflow", "plan", "list"], {**environment, "DCOS_TENSORFLOW_TOKEN": "look"})


def test_read_token_cannot_write(own) -> None:
    refused = own("--token=look", "plan", "pause", "deploy")

    assert 1 == refused.code
    assert "read" in refused.err
    assert 0 == own("--token=change", "plan", "pause", "deploy").code


def test_token_passes_admin_router_beside_the_login(dcos, api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Admin Router takes `Authorization` for the login to DC/OS."""
    sent: list[dict[str, str]] = []
    build = transport.ServiceRequest

    def record(*request: Any) -> Any:
        if request[0] == "POST":  # not the question whether a name with a slash is a job
            sent.append(request[2])
        return build(*request)

    monkeypatch.setattr(transport, "ServiceRequest", record)

    assert 1 == dcos("--token=look", "plan", "pause", "deploy", DCOS_ACS_TOKEN="a.b.c").code
    assert 0 == dcos("--token=change", "plan", "pause", "deploy", DCOS_ACS_TOKEN="a.b.c").code
    assert [("token=a.b.c", "look"), ("token=a.b.c", "change")] == [
        (headers["Authorization"], headers["X-TensorFlow-Token"]) for headers in sent
    ]


def test_cosmos_does_not_get_the_token_of_the_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The header is for the scheduler alone."""
    sent: list[dict[str, str]] = []
    description = json.dumps({"package": {"name": "tensorflow", "version": "1"}, "resolvedOptions": {}})
    answers = iter([description, "[]"])
    monkeypatch.setattr(
        transport, "send", lambda request, *_: (sent.append(dict(request.headers)), (200, next(answers)))[1]
    )
    service = ServiceClient(ClusterConnection("http://dcos", "a.b.c"), "x", token="secret")

    service.cosmos("service.describe", "cosmos/service/describe", {})
    service.get("v1/plans")

    assert ["token=a.b.c", "token=a.b.c"] == [headers["Authorization"] for headers in sent]
    assert [False, True] == ["X-TensorFlow-Token" in headers for headers in sent]


def test_client_certificate_is_loaded(tmp_path: Path, certificates) -> None:
    """DCOS_TENSORFLOW_CERTIFICATE: certificate and key in one file."""
    pem = certificates.path("client.both.pem")

    assert isinstance(ClusterConnection("https://x", certificate=pem).tls(), ssl.SSLContext)
    with pytest.raises(CommandError, match="cannot be read"):
        ClusterConnection("https://x", certificate=str(tmp_path / "none")).tls()


@pytest.fixture
def places(certificates):
    """Addresses of a server with an unknown certificate, and of one without TLS."""
    app = Starlette()
    with (
        ApiServer(app, "127.0.0.1", 0, ServerTls(*certificates.pair("stranger"))) as encrypted,
        ApiServer(app, "127.0.0.1", 0) as plain,
    ):
        yield {"encrypted": f"127.0.0.1:{encrypted.port}", "plain": f"127.0.0.1:{plain.port}"}


@pytest.mark.parametrize(
    ("scheme", "place", "words"),
    [
        ("https", "encrypted", "to the CA's PEM file"),
        ("http", "encrypted", "try https:// instead of http://"),
        ("https", "plain", "try http:// instead of https://"),
    ],
)
def test_tls_mismatch_names_the_remedy(
    own,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    places,
    scheme: str,
    place: str,
    words: str,
) -> None:
    """Each program names its own setting."""
    url = f"{scheme}://{places[place]}"
    monkeypatch.setenv("DCOS_TENSORFLOW_URL", url)
    result = own("plan", "list")

    assert (3, True) == (result.code, words in result.err), result.err
    assert 3 == main(["plan", "list"], {"DCOS_URL": url, "DCOS_DIR": "/nowhere"})
    theirs = capsys.readouterr().err
    assert words in theirs
    if words.endswith("as "):
        assert "DCOS_TENSORFLOW_CA_FILE" in result.err
        assert "core.ssl_verify" in theirs


def test_unreadable_ca_file_names_its_variable(own, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DCOS_TENSORFLOW_CA_FILE", "/nope")

    assert (
        "DCOS_TENSORFLOW_CA_FILE: `/nope`: cannot be read: No such file"
        in own("--url", "https://127.0.0.1:9", "tasks").err
    )
