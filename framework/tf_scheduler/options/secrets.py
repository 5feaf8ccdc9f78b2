"""Resolved options -> which tasks get which secrets, and how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tf_scheduler.model.secrets import DEFAULT, OPTION, Access, Delivery, Hidden, SecretSpec, VaultAccess

from .words import words

Document = Mapping[str, Any]

#: Where the client of Google Cloud looks for its key, and MIT Kerberos for what it needs.
_GCS, _KEYTAB, _KERBEROS = "GOOGLE_APPLICATION_CREDENTIALS", "KRB5_CLIENT_KTNAME", "KRB5_CONFIG"
#: The original package's secret with the key.
_GCS_SECRET = "gcs_key"  # noqa: S105 - its name
_GCS_OPTION, _KRB5 = "service.gcs_key", "krb5.conf"
#: What a command such as kinit wants to know, and where MIT Kerberos logs.
_PRINCIPAL, _TRACE = "KERBEROS_PRINCIPAL", "KRB5_TRACE"


def secrets_of(options: Document) -> tuple[SecretSpec, ...]:
    """Those of `secrets`, and those that the options of the original package stand for."""
    own = (
        SecretSpec(
            record["source"],
            record["env"],
            record["file"],
            frozenset(words(record["jobs"])),
            reloads=bool(record["reload"]),
        )
        for record in options["secrets"]
    )
    return (*own, *_gcs(options["service"]), *_kerberos(options["service"]["security"]["kerberos"]))


def delivery_of(options: Document) -> Delivery:
    """How executors get them."""
    given = options["secret_delivery"]
    return Delivery(
        url=given["url"].rstrip("/"),
        expires=given["expires_seconds"],
        from_agent_only=given["from_agent_only"],
        reload_every=given["reload_seconds"],
        ca_file=given["ca_file"],
    )


def access_of(options: Document) -> Access:
    """How the scheduler gets them."""
    vault, dcos = options["vault"], options["dcos"]
    return Access(
        directory=options["secret_delivery"]["directory"],
        vault=VaultAccess(**vault),
        dcos_url=dcos["url"].rstrip("/"),
        dcos_ca_file=dcos["ca_file"] or options["tls"]["ca_file"],
        mesos_secret=options["mesos"]["secret"],
        inline={_GCS_OPTION: Hidden(options["service"]["gcs_key"]), **_kerberos_values(options)},
    )


def _gcs(service: Document) -> Iterator[SecretSpec]:
    if service["gcs_key"]:
        yield SecretSpec(f"{OPTION}:{_GCS_OPTION}", _GCS, f"{_GCS_SECRET}.json")
    elif service["use_gcs_key_secret"]:
        yield SecretSpec(f"{DEFAULT}:{_GCS_SECRET}", _GCS, f"{_GCS_SECRET}.json")


def _kerberos(kerberos: Document) -> Iterator[SecretSpec]:
    if kerberos["enabled"]:
        yield SecretSpec(kerberos["keytab_secret"], _KEYTAB, "client.keytab")
        # No secrets, but they come the same way: a change of them restarts nothing.
        yield SecretSpec(f"{OPTION}:{_KRB5}", _KERBEROS, _KRB5)
        yield SecretSpec(f"{OPTION}:{_PRINCIPAL}", _PRINCIPAL)
        if kerberos["debug"]:
            yield SecretSpec(f"{OPTION}:{_TRACE}", _TRACE)


def _kerberos_values(options: Document) -> Mapping[str, Hidden]:
    kerberos = options["service"]["security"]["kerberos"]
    if not kerberos["enabled"]:
        return {}
    principal = f"{kerberos['primary']}@{kerberos['realm']}"
    values = {_KRB5: _krb5_conf(kerberos), _PRINCIPAL: principal, _TRACE: "/dev/stderr"}
    return {name: Hidden(value) for name, value in values.items()}


def _krb5_conf(kerberos: Document) -> str:
    realm, kdc = kerberos["realm"], kerberos["kdc"]
    where = f"{realm} = {{\n    kdc = {kdc['hostname']}:{kdc['port']}\n  }}"
    return f"[libdefaults]\n  default_realm = {realm}\n[realms]\n  {where}\n"
