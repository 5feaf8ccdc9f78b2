"""From options: credentials, secret sources, trusted CAs, and values to redact."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from mesos_client.credentials import BasicCredentials, Credentials
from tf_scheduler.errors import OptionsError, Problem, SecretError
from tf_scheduler.model.redaction import MASK
from tf_scheduler.model.secrets import SecretAccess, SecretDelivery
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.options.schema import fields
from tf_scheduler.options.schema.document import OPTIONS, mask_value
from tf_scheduler.secrets.sources import (
    MISSING_VAULT,
    Reader,
    SecretSources,
    directory_reader,
    environment_reader,
    options_reader,
)

Environment = Mapping[str, str]
CREDENTIAL = "DCOS_SERVICE_ACCOUNT_CREDENTIAL"
#: Where DC/OS Enterprise puts its certificate authorities: in each sandbox, also of containers, and on each node.
_SANDBOX_AUTHORITIES = ".ssl/ca-bundle.crt"
_NODE_AUTHORITIES = "/run/dcos/pki/CA/ca-bundle.crt"
DCOS_AUTHORITIES = (f"$MESOS_SANDBOX/{_SANDBOX_AUTHORITIES}", _NODE_AUTHORITIES)


def with_api_address(spec: ServiceSpec, environment: Environment, port: int, scheme: str = "http") -> ServiceSpec:
    """Return the spec with API address and CAs for executors. Raises OptionsError."""
    host = environment.get("HOST") or socket.gethostname()
    url = spec.secret_delivery.url or f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
    return replace(
        spec, secret_delivery=replace(spec.secret_delivery, url=url, authorities=_authorities(spec.secret_delivery))
    )


def _authorities(delivery: SecretDelivery) -> str:
    if not delivery.ca_file:
        return ""
    try:
        return Path(delivery.ca_file).read_text()
    except (OSError, ValueError) as error:
        raise OptionsError([Problem("secret_delivery.ca_file", f"cannot read the file: {error}")]) from error


def trusted_authorities(option: str, path: str, environment: Environment) -> str | bool:
    """Return the file of trusted CAs, or True for the system's CAs.

    The file is `path`, the option's value; if that is empty, DC/OS' file, if it exists. Raises OptionsError if `path`
    does not exist.
    """
    if path:
        try:
            Path(path).stat()
        except OSError as error:
            why = f"`{path}`: {error.strerror}; on DC/OS leave the option empty: the scheduler then uses"
            raise OptionsError([Problem(option, f"{why} {' or '.join(DCOS_AUTHORITIES)}")]) from error
        return path
    places = [Path(environment.get("MESOS_SANDBOX") or "/nonexistent", _SANDBOX_AUTHORITIES), Path(_NODE_AUTHORITIES)]
    return next((str(place) for place in places if place.is_file()), True)


def sources_of(access: SecretAccess, environment: Environment) -> SecretSources:
    """Return all configured sources of task secrets. Raises AccountError."""
    readers = {**_local_readers(access, environment), "option": options_reader(access.inline)}
    if access.vault.address:
        readers["vault"] = _vault(access, SecretSources(_local_readers(access, environment)))
    if (dcos := _dcos(access, environment)) is not None:
        readers["dcos"] = dcos
    return SecretSources(readers)


def _local_readers(access: SecretAccess, environment: Environment) -> dict[str, Reader]:
    return {"env": environment_reader(environment), "file": directory_reader(Path(access.directory))}


def credentials_of(spec: ServiceSpec, environment: Environment) -> Credentials | None:
    """Return credentials for Mesos, None if unset. Raises AccountError, OptionsError."""
    if spec.secret_access.mesos_secret:
        local = SecretSources(_local_readers(spec.secret_access, environment))
        try:
            return BasicCredentials(spec.principal, local.value(spec.secret_access.mesos_secret).decode().strip())
        except SecretError as error:
            raise OptionsError([Problem("mesos.secret", str(error))]) from error
    login = _dcos_login(spec.secret_access, environment)
    return None if login is None else login[1]


def _vault(access: SecretAccess, local: SecretSources) -> Reader:
    # Imported here, because only services with a Vault need the client library.
    try:
        from tf_scheduler.secrets.vault import Vault, VaultLogin
    except ImportError:
        raise OptionsError([Problem("vault.address", MISSING_VAULT)]) from None

    options = access.vault
    login = VaultLogin(lambda: local.value(options.token), options.role_id, lambda: local.value(options.secret_id))
    return Vault(options.address, login, options.ca_file, options.namespace).read


def _dcos_login(access: SecretAccess, environment: Environment) -> tuple[str, Credentials] | None:
    """Return the service account's cluster URL and credentials; None if it is not set."""
    if not environment.get(CREDENTIAL):
        return None
    from tf_scheduler.dcos import ServiceLogin, account_of

    account = account_of(environment)
    if account is None:
        return None
    return account.cluster, ServiceLogin(account, _dcos_authorities(access, environment)).credentials()


def _dcos_authorities(access: SecretAccess, environment: Environment) -> str | bool:
    return trusted_authorities("dcos.ca_file", access.dcos_ca_file, environment)


def _dcos(access: SecretAccess, environment: Environment) -> Reader | None:
    login = _dcos_login(access, environment)
    if login is None:
        return None
    from tf_scheduler.dcos import SecretStore

    return SecretStore(access.dcos_url or login[0], login[1], _dcos_authorities(access, environment)).read


_SOURCE = "env:"
#: Sources of task secrets whose values are known at the start, and redacted in logs.
KNOWN_SOURCES = (_SOURCE, "option:")


def api_token(options: Mapping[str, Any], environment: Mapping[str, str], source: str) -> str:
    """Return a token of the API; empty without a source. Raises SecretError."""
    if not source:
        return ""
    directory = Path(options["secret_delivery"]["directory"])
    near = SecretSources({"env": environment_reader(environment), "file": directory_reader(directory)})
    if token := os.fsdecode(near.value(source)).strip():
        return token
    raise SecretError(f"{source}: empty token")


def known_secrets(
    options: Mapping[str, Any], environment: Mapping[str, str], tokens: Iterable[str] = ()
) -> Iterator[str]:
    """Yield secrets in options, in variables that these name, `tokens`, users' tokens."""
    for option in OPTIONS:
        value = option.value(options)
        if isinstance(option.field, fields.Environment):
            masked = mask_value(option, value)
            yield from (text for name, text in value.items() if masked[name] == MASK)
        elif option.metadata("secret") and value:
            yield str(value)
    yield from (environment.get(name, "") for name in referenced_variables(options))
    yield from filter(None, tokens)
    for record in options["api"]["users"]:
        with suppress(SecretError):  # an error of the API's settings
            yield api_token(options, environment, record["token"])
    yield from _account(environment.get(CREDENTIAL, ""))


def referenced_variables(value: Any) -> Iterator[str]:
    """Yield the names of variables referenced as `env:NAME` anywhere in `value`."""
    if isinstance(value, str) and value.startswith(_SOURCE):
        yield value.removeprefix(_SOURCE)
    for item in value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ():
        yield from referenced_variables(item)


def _account(credential: str) -> Iterator[str]:
    """Yield the credential of a DC/OS service account, and the private key in it."""
    if credential.lstrip().startswith("{"):
        yield credential
        try:
            yield str(json.loads(credential).get("private_key", ""))
        except (ValueError, RecursionError):
            return
