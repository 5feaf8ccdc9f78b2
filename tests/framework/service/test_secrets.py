"""What options and environment make of the scheduler's own access."""

from __future__ import annotations

import base64

import pytest

from dcos_stand_in import Dcos
from tf_scheduler.errors import OptionsError, SecretError, SourceUnavailableError
from tf_scheduler.options.load import resolve, to_spec
from tf_scheduler.service.secrets import credentials_of, sources_of, with_api_address

KERBEROS = {
    "enabled": True,
    "realm": "LOCAL",
    "keytab_secret": "team/keytab",
    "kdc": {"hostname": "kdc", "port": 88},
    "debug": True,
}


def spec_of(**document):
    return to_spec(resolve({"service": {"command": "x", **document.pop("service", {})}, **document}))


def test_mesos_learns_the_principals_secret(tmp_path):
    """From a file or a variable, without the line end."""
    (tmp_path / "mesos").write_text("hush\n")
    own = {"service": {"principal": "tf"}, "secret_delivery": {"directory": str(tmp_path)}}
    header = "Basic " + base64.b64encode(b"tf:hush").decode()

    assert header == credentials_of(spec_of(**own, mesos={"secret": "file:mesos"}), {}).header()
    assert header == credentials_of(spec_of(**own, mesos={"secret": "env:HUSH"}), {"HUSH": "hush"}).header()
    assert None is credentials_of(spec_of(**own), {})


def test_a_principals_secret_that_is_not_there_is_told():
    """By the option."""
    with pytest.raises(OptionsError, match=r"mesos\.secret: env:HUSH: the scheduler has no such variable"):
        credentials_of(spec_of(service={"principal": "tf"}, mesos={"secret": "env:HUSH"}), {})


def test_a_service_account_logs_in_and_reads_the_secret_store():
    """With nothing but the variable that the package sets."""
    dcos = Dcos()
    try:
        dcos.secrets["team/key"] = ("application/json", b'{"value": "canary"}')
        environment = {"DCOS_SERVICE_ACCOUNT_CREDENTIAL": dcos.credential()}
        spec = spec_of()
        assert dcos.is_known(credentials_of(spec, environment).header())
        sources = sources_of(spec.secret_access, environment)
        assert b"canary" == sources.value("/team/key")
        with pytest.raises(SecretError, match="dcos:team/none: the DC/OS secret store denied access: HTTP 404"):
            sources.value("dcos:team/none")
        dcos.down = True
        with pytest.raises(SourceUnavailableError, match="dcos:team/key: the DC/OS secret store does not answer"):
            sources.value("dcos:team/key")
    finally:
        dcos.close()


def test_vault_is_asked_where_the_options_say():
    """Only then."""
    named = sources_of(spec_of(vault={"address": "http://127.0.0.1:9"}).secret_access, {"VAULT_TOKEN": "t"})
    with pytest.raises(SourceUnavailableError, match=r"127\.0\.0\.1:9 does not answer"):
        named.value("vault:a/b#c")
    with pytest.raises(SecretError, match="no access"):
        sources_of(spec_of().secret_access, {}).value("vault:a/b#c")


@pytest.mark.parametrize(
    ("host", "url"),
    [("10.0.0.1", "http://10.0.0.1:80"), ("fe80::1", "http://[fe80::1]:80"), ("agent-1", "http://agent-1:80")],
)
def test_tasks_reach_the_scheduler_where_marathon_put_it(host, url):
    """Or where the options say."""
    assert url == with_api_address(spec_of(), {"HOST": host}, 80).secret_delivery.url
    named = spec_of(secret_delivery={"url": "https://tf.example.com/"})
    assert "https://tf.example.com" == with_api_address(named, {"HOST": host}, 80).secret_delivery.url


def test_tasks_get_the_certificates_that_they_shall_trust(tmp_path):
    """Their content, as the file is here and not on the agents."""
    (tmp_path / "ca.pem").write_text("PEM")
    named = spec_of(secret_delivery={"ca_file": str(tmp_path / "ca.pem")})
    assert "PEM" == with_api_address(named, {"HOST": "h"}, 80, "https").secret_delivery.authorities
    with pytest.raises(OptionsError, match=r"secret_delivery\.ca_file: cannot read the file: .*nowhere"):
        with_api_address(spec_of(secret_delivery={"ca_file": "/nowhere"}), {"HOST": "h"}, 80)


def test_a_key_of_google_becomes_a_file():
    """As the original package takes it: in the options, or by the name of a secret."""
    spec = spec_of(service={"gcs_key": '{"key": 1}'})
    (item,) = spec.secrets
    assert ("GOOGLE_APPLICATION_CREDENTIALS", "gcs_key.json") == (item.env, item.file)
    assert b'{"key": 1}' == sources_of(spec.secret_access, {}).value(item.source)
    assert '{"key": 1}' not in repr(spec)
    (item,) = spec_of(service={"use_gcs_key_secret": True}).secrets
    assert "dcos:gcs_key" == item.source


def test_kerberos_becomes_two_files():
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
