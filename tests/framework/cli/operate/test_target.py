"""Which service is meant."""

import contextlib

import pytest

from dcos_command.client import ServiceOptions
from dcos_command.errors import UnreachableError, UsageError
from tf_scheduler.cli.local_run.discovery import resolve_service
from tf_scheduler.cli.local_run.installed import InstalledService, LocalInstallation
from tf_scheduler.cli.local_run.process import advertise

NOWHERE = {"DCOS_DIR": "/nowhere"}


@pytest.fixture(autouse=True)
def _home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture
def running():
    """Notes of services: name -> URL."""
    with contextlib.ExitStack() as stack:

        def add(name, url):
            stack.enter_context(advertise(name))(url)

        yield add


@pytest.mark.parametrize(
    ("wanted", "url", "name", "direct"),
    [
        (ServiceOptions(url="http://10.0.0.1:8080/"), "http://10.0.0.1:8080", "", True),
        (ServiceOptions(url="https://dcos/service/dev/mnist/"), "https://dcos/service/dev/mnist", "dev/mnist", False),
        (ServiceOptions(url="https://dcos", name="/mnist"), "https://dcos/service/mnist", "mnist", False),
        (ServiceOptions(url="https://proxy/x/service/mnist"), "https://proxy/x/service/mnist", "mnist", False),
    ],
)
def test_a_url_is_of_a_scheduler_or_of_dcos(wanted, url, name, direct):
    """DC/OS has its services below /service."""
    found = resolve_service(wanted, NOWHERE)

    assert (url, name, direct) == (found.url, found.name, direct)


def test_the_environment_says_it_as_well():
    """An option counts more."""
    environment = {**NOWHERE, "DCOS_TENSORFLOW_URL": "http://env:1", "DCOS_TENSORFLOW_TOKEN": "env"}

    assert ("http://env:1", "env") == (
        resolve_service(ServiceOptions(), environment).url,
        resolve_service(ServiceOptions(), environment).cluster.token,
    )
    said = resolve_service(ServiceOptions(url="http://said:1", token="said"), environment)
    assert ("http://said:1", "said") == (said.url, said.cluster.token)


def test_the_only_service_on_this_machine_needs_no_option(running):
    """That is what `local run` is for."""
    running("digits", "http://127.0.0.1:31000")

    found = resolve_service(ServiceOptions(), NOWHERE)

    assert ("digits", "http://127.0.0.1:31000", True) == (found.name, found.url, found.direct)


def test_of_several_one_is_chosen_by_name(running):
    """The names are told."""
    running("digits", "http://127.0.0.1:1")
    running("mnist", "http://127.0.0.1:2")

    assert "http://127.0.0.1:2" == resolve_service(ServiceOptions(name="mnist"), NOWHERE).url
    assert (
        "http://127.0.0.1:1"
        == resolve_service(ServiceOptions(), {**NOWHERE, "DCOS_TENSORFLOW_SERVICE_NAME": "digits"}).url
    )
    with pytest.raises(
        UsageError, match=r"several services run on this machine: (digits, mnist|mnist, digits); choose"
    ):
        resolve_service(ServiceOptions(), NOWHERE)
    with pytest.raises(UnreachableError, match="no service other runs on this machine; there are: "):
        resolve_service(ServiceOptions(name="other"), NOWHERE)


def test_installed_service_is_found_with_its_installation(tmp_path):
    """By its name, which need not be its id on the cluster."""
    folder = tmp_path / "services" / "mnist-2"
    with advertise("dev/mnist", str(folder)) as tell:
        tell("http://127.0.0.1:1")
        found = resolve_service(ServiceOptions(name="/dev/mnist"), NOWHERE)

    assert ("dev/mnist", "http://127.0.0.1:1", True) == (found.name, found.url, found.direct)
    assert LocalInstallation(InstalledService(tmp_path, "mnist-2")) == found.installation


def test_the_attached_cluster_is_asked_when_nothing_runs_here(running, tmp_path):
    """As the dcos command does it; DCOS_URL counts more than what runs here."""
    (tmp_path / "dcos.toml").write_text('[core]\ndcos_url = "https://attached"\ndcos_acs_token = "t"\n')
    environment = {"DCOS_DIR": str(tmp_path)}

    attached = resolve_service(ServiceOptions(), environment)
    assert ("https://attached/service/tensorflow", "t") == (attached.url, attached.cluster.token)
    running("digits", "http://127.0.0.1:1")
    assert "http://127.0.0.1:1" == resolve_service(ServiceOptions(), environment).url
    assert "https://attached/service/mnist" == resolve_service(ServiceOptions(name="mnist"), environment).url
    assert (
        "https://env/service/tensorflow"
        == resolve_service(ServiceOptions(), {**environment, "DCOS_URL": "https://env"}).url
    )


def test_where_nothing_is_known_the_ways_are_told():
    """Start one, give the URL, attach a cluster."""
    with pytest.raises(UnreachableError, match=r"(?s)local run.*--url.*dcos cluster setup"):
        resolve_service(ServiceOptions(), NOWHERE)


def test_a_url_without_a_scheme_is_wrong_usage():
    """Not guessed."""
    with pytest.raises(UsageError, match="must begin with http"):
        resolve_service(ServiceOptions(url="10.0.0.1:8080"), NOWHERE)


@pytest.mark.parametrize("url", ["http://", "https:///"])
def test_a_url_without_a_host_is_wrong_usage(url):
    """Told before anything is asked."""
    with pytest.raises(UsageError, match="missing host"):
        resolve_service(ServiceOptions(url=url), NOWHERE)
