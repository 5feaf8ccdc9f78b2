"""Puts together how the scheduler gets at secrets, its own and those of tasks, and who it is to Mesos."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from mesos_client import Basic, Credentials
from tf_scheduler.core.handover import given_by_us, given_now, is_known
from tf_scheduler.errors import OptionsError, Problem
from tf_scheduler.interfaces import Observer
from tf_scheduler.model.secrets import Access, Delivery, Source
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.secrets.desk import Desk, Thunk
from tf_scheduler.secrets.errors import SecretError, SourceAway
from tf_scheduler.secrets.sources import Reader, Sources, directory_reader, environment_reader, options_reader

Environment = Mapping[str, str]
_LOOPBACK = "127.0.0.1"


def needs_desk(spec: ServiceSpec) -> bool:
    """Whether any task fetches secrets from the scheduler."""
    return any(given_by_us(spec, job.group) for job in spec.jobs)


def desk_of(spec: ServiceSpec, put: Callable[[Thunk], None], environment: Environment) -> Desk:
    """The desk of a service. Raise AccountError for a credential of DC/OS that cannot be used."""
    return Desk(put, sources_of(spec.access, environment), given_now, is_known)


@contextmanager
def served_desk(
    spec: ServiceSpec, put: Callable[[Thunk], None], environment: Environment
) -> Iterator[tuple[ServiceSpec, tuple[Observer, ...]]]:
    """For a scheduler without an API: one on loopback for secrets alone, and nothing where no task has any."""
    if not needs_desk(spec):
        yield spec, ()
        return
    # A web server, which a job without secrets need not load.
    from tf_scheduler.api.secrets import secrets_app
    from tf_scheduler.api.server import ApiServer

    desk = desk_of(spec, put, environment)
    with ApiServer(secrets_app(desk.give), _LOOPBACK, 0) as api:
        yield reachable(spec, {"HOST": _LOOPBACK}, api.port), (desk.observe,)


def reachable(spec: ServiceSpec, environment: Environment, port: int, scheme: str = "http") -> ServiceSpec:
    """The spec with the address of the API, if the options name none, and whom to trust there. Raise OptionsError."""
    host = environment.get("HOST") or socket.gethostname()
    url = spec.delivery.url or f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
    return replace(spec, delivery=replace(spec.delivery, url=url, authorities=_authorities(spec.delivery)))


def _authorities(delivery: Delivery) -> str:
    if not delivery.ca_file:
        return ""
    try:
        return Path(delivery.ca_file).read_text()
    except (OSError, ValueError) as error:
        raise OptionsError([Problem("secret_delivery.ca_file", f"cannot be read: {error}")]) from error


def sources_of(access: Access, environment: Environment) -> Sources:
    """Every source that the options and the environment give access to. Raise AccountError."""
    own: dict[str, Reader] = {
        "env": environment_reader(environment),
        "file": directory_reader(Path(access.directory)),
    }
    near = Sources(own)
    readers = {**own, "option": options_reader(access.inline)}
    if access.vault.address:
        readers["vault"] = _vault(access, near)
    if (dcos := _dcos(access, environment)) is not None:
        readers["dcos"] = dcos
    return Sources(readers)


def credentials_of(spec: ServiceSpec, environment: Environment) -> Credentials | None:
    """Who we are to Mesos; None: it does not ask. Raise AccountError, OptionsError."""
    if spec.access.mesos_secret:
        near = Sources({"env": environment_reader(environment), "file": directory_reader(Path(spec.access.directory))})
        try:
            return Basic(spec.principal, near.value(spec.access.mesos_secret).decode().strip())
        except SecretError as error:
            raise OptionsError([Problem("mesos.secret", str(error))]) from error
    return _dcos_login(spec.access, environment)


def _vault(access: Access, near: Sources) -> Reader:
    # Loads a client library that only those need who have a Vault.
    from tf_scheduler.secrets.vault import Login, Vault

    given = access.vault
    login = Login(lambda: near.value(given.token), given.role_id, lambda: near.value(given.secret_id))
    return Vault(given.address, login, given.ca_file, given.namespace).read


def _dcos_login(access: Access, environment: Environment) -> Credentials | None:
    if not environment.get("DCOS_SERVICE_ACCOUNT_CREDENTIAL"):
        return None
    from tf_scheduler.dcos.account import account_of
    from tf_scheduler.dcos.login import ServiceLogin

    account = account_of(environment)
    return None if account is None else ServiceLogin(account, access.dcos_ca_file or True).credentials()


def _dcos(access: Access, environment: Environment) -> Reader | None:
    credentials = _dcos_login(access, environment)
    if credentials is None:
        return None
    from tf_scheduler.dcos.account import account_of
    from tf_scheduler.dcos.secret_store import SecretStore, StoreAway, StoreRefused

    account = account_of(environment)
    assert account is not None, "it has credentials"
    store = SecretStore(access.dcos_url or account.cluster, credentials, access.dcos_ca_file or True)

    def read(source: Source) -> bytes:
        try:
            return store.read(source.path)
        except StoreAway as error:
            raise SourceAway(f"{source}: the secret store of DC/OS does not answer: {error}") from error
        except StoreRefused as error:
            raise SecretError(f"{source}: the secret store of DC/OS refuses it: {error}") from error

    return read
