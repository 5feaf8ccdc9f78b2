"""Secrets of the scheduler: credentials, sources of tasks' secrets, redaction."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dcos_stand_in import Dcos
from tf_scheduler.api.http.auth import Policy
from tf_scheduler.errors import OptionsError, SecretError, SourceUnavailableError
from tf_scheduler.options.load import resolve
from tf_scheduler.options.spec import to_spec
from tf_scheduler.service.secrets import (
    credentials_of,
    known_secrets,
    sources_of,
    trusted_authorities,
    with_api_address,
)

KERBEROS = {
    "enabled": True,
    "realm": "LOCAL",
    "keytab_secret": "team/keytab",
    "kdc": {"hostname": "kdc", "port": 88},
    "debug": True,
}


def spec_of(**document):
    return to_spec(resolve({"service": {"command": "x", **document.pop("service", {})}, **document}))


def test_mesos_secret_from_file_or_variable(tmp_path: Path) -> None:
    """Without the line break at the end."""
    (tmp_path / "mesos").write_text("hush\n")
    own = {"service": {"principal": "tf"}, "secret_delivery": {"directory": str(tmp_path)}}
    header = "Basic " + base64.b64encode(b"tf:hush").decode()

    assert header == credentials_of(spec_of(**own, mesos={"secret": "file:mesos"}), {}).header()
    assert header == credentials_of(spec_of(**own, mesos={"secret": "env:HUSH"}), {"HUSH": "hush"}).header()
    assert None is credentials_of(spec_of(**own), {})


def test_missing_mesos_secret_names_option() -> None:
    with pytest.raises(OptionsError, match=r"mesos\.secret: env:HUSH: missing variable"):
        credentials_of(spec_of(service={"principal": "tf"}, mesos={"secret": "env:HUSH"}), {})


def test_authorities_of_dcos_are_found(tmp_path: Path) -> None:
    """In the sandbox; the option wins, and elsewhere the system decides."""
    bundle, own = tmp_path / ".ssl" / "ca-bundle.crt", tmp_path / "own.pem"
    environment = {"MESOS_SANDBOX": str(tmp_path)}

    assert trusted_authorities("tls.ca_file", "", environment) is True
    bundle.parent.mkdir()
    bundle.touch()
    assert str(bundle) == trusted_authorities("tls.ca_file", "", environment)
    assert trusted_authorities("tls.ca_file", "", {}) is True
    with pytest.raises(
        OptionsError, match=r"tls\.ca_file: `.*own\.pem`: No such file.*SANDBOX/\.ssl/.* or /run/dcos/pki/"
    ):
        trusted_authorities("tls.ca_file", str(own), environment)
    own.touch()
    assert str(own) == trusted_authorities("tls.ca_file", str(own), environment)


def test_service_account_reads_secret_store() -> None:
    """With only the variable that the package sets."""
    dcos = Dcos()
    try:
        dcos.secrets["team/key"] = ("application/json", b'{"value": "canary"}')
        environment = {"DCOS_SERVICE_ACCOUNT_CREDENTIAL": dcos.credential()}
        spec = spec_of()
        assert dcos.is_known(credentials_of(spec, environment).header())
        sources = sources_of(spec.secret_access, environment)
        assert b"canary" == sources.value("/team/key")
        with pytest.raises(SecretError, match="dcos:team/none: the DC/OS secret store returned HTTP 404"):
            sources.value("dcos:team/none")
        dcos.down = True
        with pytest.raises(SourceUnavailableError, match="dcos:team/key: the DC/OS secret store returned HTTP 503"):
            sources.value("dcos:team/key")
    finally:
        dcos.close()


def test_vault_without_extra_names_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The base installation has no hvac; services without a Vault do not import it."""
    monkeypatch.delitem(sys.modules, "tf_scheduler.secrets.vault", raising=False)
    monkeypatch.setitem(sys.modules, "hvac", None)

    sources_of(spec_of().secret_access, {})
    with pytest.raises(OptionsError, match=r"vault\.address: .* extra `vault`: pip install 'dcos-tensorflow\[vault\]'"):
        sources_of(spec_of(vault={"address": "http://127.0.0.1:9"}).secret_access, {})


def test_vault_is_used_if_configured() -> None:
    named = sources_of(spec_of(vault={"address": "http://127.0.0.1:9"}).secret_access, {"VAULT_TOKEN": "t"})
    with pytest.raises(SourceUnavailableError, match=r"127\.0\.0\.1:9 does not answer"):
        named.value("vault:a/b#c")
    with pytest.raises(SecretError, match="not configured"):
        sources_of(spec_of().secret_access, {}).value("vault:a/b#c")


@pytest.mark.parametrize(
    ("host", "url"),
    [("10.0.0.1", "http://10.0.0.1:80"), ("fe80::1", "http://[fe80::1]:80"), ("agent-1", "http://agent-1:80")],
)
def test_api_address_for_tasks(host, url) -> None:
    """From Marathon's variables, or from the options."""
    assert url == with_api_address(spec_of(), {"HOST": host}, 80).secret_delivery.url
    named = spec_of(secret_delivery={"url": "https://tf.example.com/"})
    assert "https://tf.example.com" == with_api_address(named, {"HOST": host}, 80).secret_delivery.url


def test_tasks_get_ca_certificates(tmp_path: Path) -> None:
    """Their content, because the file does not exist on the agents."""
    (tmp_path / "ca.pem").write_text("PEM")
    named = spec_of(secret_delivery={"ca_file": str(tmp_path / "ca.pem")})
    assert "PEM" == with_api_address(named, {"HOST": "h"}, 80, "https").secret_delivery.authorities
    with pytest.raises(OptionsError, match=r"secret_delivery\.ca_file: cannot read the file: .*nowhere"):
        with_api_address(spec_of(secret_delivery={"ca_file": "/nowhere"}), {"HOST": "h"}, 80)


def test_google_key_becomes_a_file() -> None:
    """As in the original package: in the options, or by the name of a secret."""
    spec = spec_of(service={"gcs_key": '{"key": 1}'})
    (item,) = spec.secrets
    assert ("GOOGLE_APPLICATION_CREDENTIALS", "gcs_key.json") == (item.env, item.file)
    assert b'{"key": 1}' == sources_of(spec.secret_access, {}).value(item.source)
    assert '{"key": 1}' not in repr(spec)
    (item,) = spec_of(service={"use_gcs_key_secret": True}).secrets
    assert "dcos:gcs_key" == item.source


def test_kerberos_becomes_two_files() -> None:
    """Keytab and configuration, where MIT Kerberos looks for them."""
    spec = spec_of(service={"security": {"kerberos": KERBEROS}})
    keytab, config, *rest = spec.secrets

    assert ("team/keytab", "KRB5_CLIENT_KTNAME", "client.keytab") == (keytab.source, keytab.env, keytab.file)
    assert ("KRB5_CONFIG", "krb5.conf") == (config.env, config.file)
    text = sources_of(spec.secret_access, {}).value(config.source).decode()
    assert "default_realm = LOCAL" in text
    assert "kdc = kdc:88" in text
    values = {item.env: sources_of(spec.secret_access, {}).value(item.source) for item in rest}
    assert {"KERBEROS_PRINCIPAL": b"tensorflow@LOCAL", "KRB5_TRACE": b"/dev/stderr"} == values


PLAIN: dict[str, Any] = {"service": {"command": "python train.py"}, "worker": {"count": 1}}


def known(environment=None, policy=None, **sections):
    service = {**PLAIN["service"], **sections.pop("service", {})}
    options = resolve({**PLAIN, **sections, "service": service})
    policy = policy or Policy()
    tokens = (policy.read_token, policy.write_token)
    return {value for value in known_secrets(options, environment or {}, tokens) if value}


def test_known_secrets_without_secrets_is_empty() -> None:
    """Variables of the scheduler that are named like a secret may contain a path."""
    assert set() == known({"API_KEY_FILE": "/etc/key.pem", "PATH": "/bin"})


def test_known_secrets_has_secret_options() -> None:
    assert {"the-key"} == known(service={"gcs_key": "the-key"})


def test_known_secrets_has_secret_task_variables() -> None:
    assert {"hunter22"} == known(worker={"count": 1, "environment": {"DB_PASSWORD": "hunter22", "MODE": "fast"}})


def test_known_secrets_has_referenced_variables() -> None:
    secret = {"source": "env:DATABASE", "env": "DATABASE"}
    environment = {"WRITING": "write-token", "DATABASE": "db-password", "OTHER": "other"}

    values = known(environment, api={"write_token": "env:WRITING"}, secrets=[secret])

    assert {"write-token", "db-password"} == values


def test_known_secrets_has_tokens_from_files() -> None:
    assert {"r-token", "w-token"} == known(policy=Policy(read_token="r-token", write_token="w-token"))


def test_known_secrets_has_tokens_of_users(tmp_path: Path) -> None:
    """Also those in files; a missing one is an error of the API's settings."""
    (tmp_path / "bob").write_text("b-token\n")
    sources = {"ann": "env:ANN", "bob": "file:bob", "cem": "file:none"}
    users = [{"name": name, "token": source} for name, source in sources.items()]
    folder = {"directory": str(tmp_path)}

    assert {"a-token", "b-token"} == known({"ANN": "a-token"}, api={"users": users}, secret_delivery=folder)


def test_known_secrets_has_service_account_key() -> None:
    """A credential that is a file name is not a secret."""
    credential = json.dumps({"uid": "tf", "private_key": "-----BEGIN\nMIIB\n"})

    assert {credential, "-----BEGIN\nMIIB\n"} == known({"DCOS_SERVICE_ACCOUNT_CREDENTIAL": credential})
    assert set() == known({"DCOS_SERVICE_ACCOUNT_CREDENTIAL": "/run/secrets/account"})
