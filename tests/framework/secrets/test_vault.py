"""Vault's API on a real server (OpenBao): engines, logins and errors."""

from __future__ import annotations

import itertools
import socket
from concurrent.futures import ThreadPoolExecutor, as_completed

import pytest

from mesos_local.host import free_ports
from tf_scheduler.errors import SecretError, SourceUnavailableError
from tf_scheduler.model.secrets import parse_source
from tf_scheduler.secrets.vault import Vault, VaultLogin

VALUE = "canary ä\n"


@pytest.fixture
def vault(bao):
    """Read with a token that may read secret/team."""
    bao.root.secrets.kv.v2.create_or_update_secret("team/db", secret={"password": VALUE, "port": 5432})
    bao.root.secrets.kv.v2.create_or_update_secret("other/db", secret={"password": "not yours"})
    token = bao.token()
    return Vault(bao.address, VaultLogin(token=lambda: token.encode()))


def read(vault, text):
    return vault.read(parse_source(text))


@pytest.mark.parametrize(("key", "value"), [("password", VALUE.encode()), ("port", b"5432")])
def test_version_2(vault, key, value) -> None:
    """The path is written without data/; other values than texts are JSON."""
    assert value == read(vault, f"vault:secret/team/db#{key}")


def test_version_1(bao) -> None:
    """The version is read from the server."""
    bao.root.secrets.kv.v1.create_or_update_secret("team/db", secret={"password": "old"}, mount_point="old")
    assert b"old" == read(Vault(bao.address, VaultLogin(token=lambda: b"root-token\n")), "vault:old/team/db#password")


def test_new_version_is_read_next_time(bao, vault) -> None:
    read(vault, "vault:secret/team/db#password")
    bao.root.secrets.kv.v2.create_or_update_secret("team/db", secret={"password": "new"})
    assert b"new" == read(vault, "vault:secret/team/db#password")


def test_approle_login(bao, vault) -> None:
    role = bao.root.auth.approle.read_role_id("scheduler")["data"]["role_id"]
    issued = bao.root.auth.approle.generate_secret_id("scheduler")["data"]["secret_id"]
    client = Vault(bao.address, VaultLogin(role_id=role, secret_id=issued.encode))
    assert VALUE.encode() == read(client, "vault:secret/team/db#password")


def test_expired_token_is_read_again(bao, vault) -> None:
    """An operator has replaced it; the scheduler is not restarted."""
    tokens = [bao.token(), bao.token()]
    client = Vault(bao.address, VaultLogin(token=lambda: tokens[0].encode()))
    read(client, "vault:secret/team/db#password")
    bao.root.auth.token.revoke(tokens.pop(0))
    assert VALUE.encode() == read(client, "vault:secret/team/db#password")


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("vault:secret/team/nothing#a", "does not exist in Vault"),
        ("vault:secret/team/db#user", "unknown key; valid keys: password, port"),
        ("vault:secret/other/db#password", "Vault: the policy must allow `read` on secret/data/other/db"),
        ("vault:nowhere/db#password", "not permitted by Vault"),
    ],
)
def test_refusal_names_the_reason(vault, source, problem) -> None:
    """With the missing policy, without any value."""
    with pytest.raises(SecretError, match=problem) as caught:
        read(vault, source)
    assert not isinstance(caught.value, SourceUnavailableError)
    assert "not yours" not in str(caught.value)


def test_wrong_token_is_refused_and_not_shown(bao) -> None:
    with pytest.raises(SecretError, match="not permitted by Vault") as caught:
        read(Vault(bao.address, VaultLogin(token=lambda: b"hush-hush")), "vault:secret/team/db#password")
    assert "hush" not in str(caught.value)


def test_wrong_approle_has_vaults_message(bao) -> None:
    login = VaultLogin(role_id="nobody", secret_id=lambda: b"hush")
    with pytest.raises(SecretError, match="refused by Vault: invalid role"):
        read(Vault(bao.address, login), "vault:secret/team/db#password")


def test_unreachable_vault_is_unavailable() -> None:
    address = f"http://127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(SourceUnavailableError, match="does not answer"):
        read(Vault(address, VaultLogin(token=lambda: b"t")), "vault:secret/team/db#password")


def test_hanging_vault_blocks_a_limited_number_of_threads() -> None:
    """The other threads serve other sources."""
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(20) as pool:
        vault = Vault(f"http://127.0.0.1:{silent.getsockname()[1]}", VaultLogin(token=lambda: b"t"))
        asked = [pool.submit(read, vault, "vault:secret/team/db#password") for _ in range(20)]
        busy = [str(one.exception()) for one in itertools.islice(as_completed(asked), 4)]
        silent.close()
        # The first has been heard by nobody; the others find nobody there.
        assert all("is slow: 16 requests are waiting" in why for why in busy)
