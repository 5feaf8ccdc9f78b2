"""Which service is meant."""

import contextlib

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from dcos_command.errors import UnreachableError, UsageError
from tf_scheduler.api.server import ApiServer
from tf_scheduler.cli.operate.here import noted
from tf_scheduler.cli.operate.target import Wanted, find

NOWHERE = {"DCOS_DIR": "/nowhere"}


@pytest.fixture(autouse=True)
def _home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture
def running():
    """Notes of services: name -> URL."""
    with contextlib.ExitStack() as stack:

        def add(name, url):
            stack.enter_context(noted(name))(url)

        yield add


@pytest.mark.parametrize(
    ("wanted", "url", "name", "direct"),
    [
        (Wanted(url="http://10.0.0.1:8080/"), "http://10.0.0.1:8080", "", True),
        (Wanted(url="https://dcos/service/dev/mnist/"), "https://dcos/service/dev/mnist", "dev/mnist", False),
        (Wanted(url="https://dcos", name="/mnist"), "https://dcos/service/mnist", "mnist", False),
        (Wanted(url="https://proxy/x/service/mnist"), "https://proxy/x/service/mnist", "mnist", False),
    ],
)
def test_a_url_is_of_a_scheduler_or_of_dcos(wanted, url, name, direct):
    """DC/OS has its services below /service."""
    found = find(wanted, NOWHERE)

    assert (url, name, direct) == (found.url, found.name, direct)


def test_the_environment_says_it_as_well():
    """An option counts more."""
    environment = {**NOWHERE, "DCOS_TENSORFLOW_URL": "http://env:1", "DCOS_TENSORFLOW_TOKEN": "env"}

    assert ("http://env:1", "env") == (find(Wanted(), environment).url, find(Wanted(), environment).cluster.token)
    said = find(Wanted(url="http://said:1", token="said"), environment)
    assert ("http://said:1", "said") == (said.url, said.cluster.token)


def test_the_only_service_on_this_machine_needs_no_option(running):
    """That is what `local run` is for."""
    running("digits", "http://127.0.0.1:31000")

    found = find(Wanted(), NOWHERE)

    assert ("digits", "http://127.0.0.1:31000", True) == (found.name, found.url, found.direct)


def test_of_several_one_is_chosen_by_name(running):
    """The names are told."""
    running("digits", "http://127.0.0.1:1")
    running("mnist", "http://127.0.0.1:2")

    assert "http://127.0.0.1:2" == find(Wanted(name="mnist"), NOWHERE).url
    assert "http://127.0.0.1:1" == find(Wanted(), {**NOWHERE, "DCOS_TENSORFLOW_SERVICE_NAME": "digits"}).url
    with pytest.raises(
        UsageError, match=r"several services run on this machine: (digits, mnist|mnist, digits); choose"
    ):
        find(Wanted(), NOWHERE)
    with pytest.raises(UnreachableError, match="no service other runs on this machine; there are: "):
        find(Wanted(name="other"), NOWHERE)


def test_what_is_installed_in_the_local_dcos_is_found(running):
    """By the labels of its apps."""
    apps = [{"labels": {"DCOS_SERVICE_NAME": "/dev/mnist"}}, {"labels": {}}]
    route = Route("/service/marathon/v2/apps", lambda _request: JSONResponse({"apps": apps}))
    with ApiServer(Starlette(routes=[route]), "127.0.0.1", 0) as server:
        running("", f"http://127.0.0.1:{server.port}")

        found = find(Wanted(), NOWHERE)

        assert ("dev/mnist", False) == (found.name, found.direct)
        assert f"http://127.0.0.1:{server.port}/service/dev/mnist" == found.url


def test_the_attached_cluster_is_asked_when_nothing_runs_here(running, tmp_path):
    """As the dcos command does it; DCOS_URL counts more than what runs here."""
    (tmp_path / "dcos.toml").write_text('[core]\ndcos_url = "https://attached"\ndcos_acs_token = "t"\n')
    environment = {"DCOS_DIR": str(tmp_path)}

    attached = find(Wanted(), environment)
    assert ("https://attached/service/tensorflow", "t") == (attached.url, attached.cluster.token)
    running("digits", "http://127.0.0.1:1")
    assert "http://127.0.0.1:1" == find(Wanted(), environment).url
    assert "https://attached/service/mnist" == find(Wanted(name="mnist"), environment).url
    assert "https://env/service/tensorflow" == find(Wanted(), {**environment, "DCOS_URL": "https://env"}).url


def test_where_nothing_is_known_the_ways_are_told():
    """Start one, give the URL, attach a cluster."""
    with pytest.raises(UnreachableError, match=r"(?s)local run.*--url.*dcos cluster setup"):
        find(Wanted(), NOWHERE)


def test_a_url_without_a_scheme_is_wrong_usage():
    """Not guessed."""
    with pytest.raises(UsageError, match="must begin with http"):
        find(Wanted(url="10.0.0.1:8080"), NOWHERE)


@pytest.mark.parametrize("url", ["http://", "https:///"])
def test_a_url_without_a_host_is_wrong_usage(url):
    """Told before anything is asked."""
    with pytest.raises(UsageError, match="no host is given"):
        find(Wanted(url=url), NOWHERE)
