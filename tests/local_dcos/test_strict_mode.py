"""The documented options for strict mode, with TLS to a real Mesos master.

Marathon's stand-in fetches `.ssl/ca-bundle.crt` into the sandbox, where DC/OS Enterprise puts its authorities, and
passes the credential on, as Marathon does with a secret. The master does not check the login.
"""

from __future__ import annotations

import getpass
import json
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dcos.marathon import Marathon
from dcos_stand_in import UID, Dcos
from kit.certificates import Certificates
from kit.commands import SMALL
from kit.waiting import wait_until
from mesos_local.cluster import LocalCluster
from tf_scheduler.options.load import merge
from tf_scheduler.package import universe
from tf_scheduler.package.render import render_app
from tf_scheduler.package.sources import PACKAGE_FOLDER, read_sources
from tls_proxy import TlsProxy

INSTALL = PACKAGE_FOLDER.parent / "docs" / "how-to" / "install.md"
NAME = "strict"


def documented() -> dict[str, Any]:
    section = INSTALL.read_text().partition("## DC/OS Enterprise, strict mode")[2].partition("\n## ")[0]
    (text,) = re.findall(r"```json\n(.*?)```", section, re.DOTALL)
    options: dict[str, Any] = json.loads(text)
    return options


def test_documented_options_fit_the_package() -> None:
    """Without a file of authorities, which the scheduler finds by itself."""
    sources = universe.check_and_fill(read_sources())

    app = render_app(sources, documented())

    assert {"serviceCredential": {"source": "tensorflow/sa"}} == app["secrets"]
    assert ("tensorflow", "leader.mesos:5050") == (app["env"]["FRAMEWORK_PRINCIPAL"], app["env"]["MESOS_MASTER"])
    assert ("true", "") == (app["env"]["TLS_ENABLED"], app["env"]["TLS_CA_FILE"])


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("universe")
    universe.build_files(folder, PACKAGE_FOLDER)
    return folder / universe.ARTEFACTS


class StrictMode:
    """The cluster behind TLS proxies, and a Marathon."""

    def __init__(self, marathon: Marathon, master: str, artefacts: Path, folder: Path) -> None:
        self.marathon, self.master, self.artefacts, self.folder = marathon, master, artefacts, folder

    def install(self, bundle: str = "", **tls: str) -> None:
        """Create the app; `bundle`: the file in each sandbox."""
        local = {
            "service": {"name": NAME, "user": getpass.getuser(), "service_account": UID, "command": "true"},
            "parameter_server": {"count": 0},
            "worker": {"count": 1, **SMALL},
            "mesos": {"master": self.master},
            "executor": {"python": sys.executable},
            "scheduler": {
                "containerized": False,
                "python": sys.executable,
                "state": (self.folder / "state.db").as_uri(),
            },
            "tls": tls,
        }
        digests = universe.read_digests(self.artefacts / universe.SUMS)
        sources = universe.check_and_fill(read_sources(), digests=digests)
        sources.resource["assets"]["uris"] = {
            "scheduler": (self.artefacts / "tensorflow-scheduler.pyz").as_uri(),
            "executor": (self.artefacts / "tensorflow-executor.pyz").as_uri(),
            "examples": (self.artefacts / "tensorflow-examples.zip").as_uri(),
        }
        app = render_app(sources, merge(documented(), local))
        if bundle:
            app["fetch"].append({"uri": Path(bundle).as_uri(), "destPath": ".ssl/ca-bundle.crt", "extract": False})
        self.marathon.create(app, checked=True)

    def log(self) -> str:
        logs = (self.folder / "marathon" / "tasks").glob(f"{NAME}.*/stdout")
        return "".join(path.read_text(errors="replace") for path in logs)


@pytest.fixture
def strict_mode(
    local_cluster: LocalCluster, certificates: Certificates, artefacts: Path, dcos: Dcos, tmp_path: Path
) -> Iterator[StrictMode]:
    context = certificates.server_context()
    with ExitStack() as stack:
        login = stack.enter_context(TlsProxy(dcos.address.removeprefix("http://"), context))
        master = stack.enter_context(TlsProxy(local_cluster.master.address, context))
        credential = dcos.credential(login_endpoint=f"https://{login.address}/acs/api/v1/auth/login")
        given = {"DCOS_SERVICE_ACCOUNT_CREDENTIAL": credential}
        marathon = stack.enter_context(Marathon(tmp_path / "marathon", local_cluster.directory, given))
        yield StrictMode(marathon, master.address, artefacts, tmp_path)


@pytest.fixture
def dcos() -> Iterator[Dcos]:
    server = Dcos()
    yield server
    server.close()


def test_scheduler_trusts_authorities_in_its_sandbox(strict_mode, certificates: Certificates, dcos: Dcos) -> None:
    """For the login, and for the connection to Mesos."""
    strict_mode.install(certificates.ca)

    wait_until(lambda: "job ended: succeeded" in strict_mode.log())

    assert {UID} == {login["uid"] for login in dcos.logins}
    assert "tls.ca_file" not in strict_mode.log()


@pytest.mark.parametrize(
    ("tls", "start"),
    [
        ({"ca_file": "/nonexistent/ca.crt"}, "tls.ca_file: `/nonexistent/ca.crt`: No such file or directory; on DC/OS"),
        ({}, "tls.ca_file is empty, and neither"),
    ],
    ids=["named", "not named"],
)
def test_missing_authorities_are_one_sentence(strict_mode, tls, start: str) -> None:
    """It names both places where DC/OS has them."""
    strict_mode.install(**tls)

    wait_until(lambda: start in strict_mode.log())

    sentence = next(line for line in strict_mode.log().splitlines() if start in line)
    assert "$MESOS_SANDBOX/.ssl/ca-bundle.crt" in sentence
    assert "/run/dcos/pki/CA/ca-bundle.crt" in sentence
    assert "Traceback" not in strict_mode.log()
