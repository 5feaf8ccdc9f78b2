"""Sources, delivery and exposure of secrets; values occur only as `HiddenText`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .ids import AgentId, TaskId, UnixTime, name_of

#: Scheme of a source -> its syntax, for messages.
SOURCE_FORMATS: Mapping[str, str] = {
    "env": "env:NAME",
    "file": "file:FOLDER/NAME",
    "vault": "vault:MOUNT/PATH#KEY",
    "dcos": "dcos:FOLDER/NAME",
    "reference": "reference:NAME#KEY",
}
#: Scheme of values inside the options; users cannot write it.
INLINE_SCHEME = "option"
#: Scheme of a source without a scheme.
DEFAULT_SCHEME = "dcos"

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATH = re.compile(r"[^\s#?%\\\x00-\x1f]+")
_WITH_KEY = ("vault", "reference")


@dataclass(frozen=True, slots=True)
class SecretSource:
    """Location of a secret value."""

    scheme: str
    #: Path or name, without leading and trailing slashes.
    path: str
    #: Key of the value if the location holds several.
    key: str = ""

    def __str__(self) -> str:
        return f"{self.scheme}:{self.path}{f'#{self.key}' if self.key else ''}"


def parse_source(text: str) -> SecretSource:
    """Parse `scheme:path#key` or a path in the DC/OS secret store.

    Raises ValueError, with the reason, if the text is not a valid source.
    """
    scheme, mark, rest = text.strip().partition(":")
    if not mark:
        scheme, rest = DEFAULT_SCHEME, scheme
    if scheme not in SOURCE_FORMATS:
        raise ValueError(f"must be one of {', '.join(SOURCE_FORMATS.values())} or a path in the DC/OS secret store")
    path, _, key = rest.partition("#")
    source = SecretSource(scheme, path.strip("/") if scheme != "file" else path, key)
    if not _fits(source):
        raise ValueError(f"must be {SOURCE_FORMATS[scheme]}")
    return source


def _fits(source: SecretSource) -> bool:
    if source.key and source.scheme not in _WITH_KEY:
        return False
    if source.scheme == "env":
        return bool(_VARIABLE.fullmatch(source.path))
    parts = source.path.split("/")
    inside = bool(_PATH.fullmatch(source.path)) and not {"", ".", ".."} & set(parts)
    return inside and (source.scheme != "vault" or (len(parts) > 1 and bool(source.key)))


@dataclass(frozen=True, slots=True)
class SecretSpec:
    """A secret that tasks get, and how they get it."""

    source: str
    #: Environment variable or file in the working directory that gets the value; at least one is set. If both are set,
    #: the variable holds the file's path.
    env: str = ""
    file: str = ""
    #: Sections whose tasks get the secret; empty for all.
    jobs: frozenset[str] = frozenset()
    #: Whether running programs get new values: the file is rewritten and the program gets SIGHUP.
    reloads: bool = False

    @property
    def reference(self) -> SecretSource | None:
        """Source that the agent resolves; `None` if the scheduler delivers the value."""
        scheme, _, rest = self.source.partition(":")
        name, _, key = rest.partition("#")
        return SecretSource(scheme, name, key) if scheme == "reference" else None

    @property
    def name(self) -> str:
        """Variable or file with the value."""
        return self.env or self.file

    def is_for(self, section: str) -> bool:
        """Return whether the tasks of the section get the secret."""
        return not self.jobs or section in self.jobs


@dataclass(frozen=True, slots=True)
class SecretExposure:
    """Secrets that another process may have taken on one agent."""

    agent_id: AgentId
    hostname: str
    #: Variable or file of each secret, of all launches on the agent.
    secrets: tuple[str, ...]
    #: The last of these launches, and what was wrong.
    launch: TaskId
    why: str
    at: UnixTime

    def __str__(self) -> str:
        return (
            f"secrets {', '.join(self.secrets)} may have been taken by another process on agent {self.hostname}: "
            f"{name_of(self.launch)} {self.why}; change the secrets at their sources, restart the tasks that use them, "
            "then run `dcos-tensorflow secrets acknowledge`"
        )


class RunningTask(NamedTuple):
    """Framework, agent and user of a task that may be running."""

    framework: str
    agent: str
    user: str


def find_neighbours(running: Collection[RunningTask], own: str, user: str) -> frozenset[tuple[str, str]]:
    """Return (framework, agent) of others' tasks as `user` where `own` runs tasks."""
    used = {task.agent for task in running if task.framework == own}
    return frozenset(
        (task.framework, task.agent)
        for task in running
        if task.framework != own and task.agent in used and task.user == user
    )


@dataclass(frozen=True, slots=True)
class SecretDelivery:
    """Delivery of secrets from the scheduler to executors."""

    #: URL of the scheduler's API, such as http://10.0.0.1:8080; set once the server listens.
    url: str = ""
    #: Validity of a launch's token in seconds.
    expires: float = 600.0
    #: Whether only the agent of the launch may fetch the secrets.
    from_agent_only: bool = True
    #: Whether tasks with secrets are placed only on agents that authenticate executors.
    requires_executor_login: bool = True
    #: Seconds between two polls for new values of reloadable secrets.
    reload_every: float = 60.0
    #: CA certificates that executors trust, as a file and its content; empty for those of the machine.
    ca_file: str = ""
    authorities: str = ""


@dataclass(frozen=True, slots=True)
class VaultAccess:
    """Access to Vault; `token` and `secret_id` are sources, not values."""

    address: str = ""
    namespace: str = ""
    ca_file: str = ""
    token: str = "env:VAULT_TOKEN"  # noqa: S105 - a source, not a token
    role_id: str = ""
    secret_id: str = "env:VAULT_SECRET_ID"  # noqa: S105


class HiddenText:
    """A text that `repr` and `str` do not show."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text."""
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HiddenText) and other.reveal() == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return "***"


@dataclass(frozen=True, slots=True)
class SecretAccess:
    """Access of the scheduler to secret values, including its own."""

    #: Directory of the files of `file:` sources.
    directory: str = "/run/secrets"
    vault: VaultAccess = field(default_factory=VaultAccess)
    #: URL of DC/OS; empty for the login URL of the service account.
    dcos_url: str = ""
    dcos_ca_file: str = ""
    #: Source of the principal's secret; empty for no authentication.
    mesos_secret: str = ""
    #: Whether agents without TLS get the credentials for Mesos.
    agent_credentials_over_http: bool = False
    #: Values inside the options.
    inline: Mapping[str, HiddenText] = field(default_factory=dict)
