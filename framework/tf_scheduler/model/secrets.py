"""Secrets as far as they are not secret: where a value is, who gets it, and how it gets there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

#: Scheme of a source -> what follows it; for people.
FORMS: Mapping[str, str] = {
    "env": "env:NAME",
    "file": "file:FOLDER/NAME",
    "vault": "vault:MOUNT/PATH#KEY",
    "dcos": "dcos:FOLDER/NAME",
    "reference": "reference:NAME#KEY",
}
#: For values that the options themselves hold: no user writes it.
OPTION = "option"
#: What a source without a scheme is.
DEFAULT = "dcos"

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATH = re.compile(r"[^\s#?%\\\x00-\x1f]+")
_WITH_KEY = ("vault", "reference")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value is."""

    scheme: str
    #: Path or name; without slashes around it.
    path: str
    #: Which value of several that are there.
    key: str = ""

    def __str__(self) -> str:
        return f"{self.scheme}:{self.path}{f'#{self.key}' if self.key else ''}"


def parse_source(text: str) -> Source:
    """`scheme:path#key`, or a path in the DC/OS secret store. Raise ValueError with a sentence about the text."""
    scheme, mark, rest = text.strip().partition(":")
    if not mark:
        scheme, rest = DEFAULT, scheme
    if scheme not in FORMS:
        raise ValueError(f"must be one of {', '.join(FORMS.values())} or a path in the DC/OS secret store")
    path, _, key = rest.partition("#")
    found = Source(scheme, path.strip("/") if scheme != "file" else path, key)
    if not _fits(found):
        raise ValueError(f"must be {FORMS[scheme]}")
    return found


def _fits(source: Source) -> bool:
    if source.key and source.scheme not in _WITH_KEY:
        return False
    if source.scheme == "env":
        return bool(_VARIABLE.fullmatch(source.path))
    parts = source.path.split("/")
    inside = bool(_PATH.fullmatch(source.path)) and not {"", ".", ".."} & set(parts)
    return inside and (source.scheme != "vault" or (len(parts) > 1 and bool(source.key)))


@dataclass(frozen=True, slots=True)
class SecretSpec:
    """One value for tasks; its source is known here, the value never."""

    source: str
    #: At least one of the two is filled: the variable, or the file in the working directory, that gets the value. With
    #: both the file gets it, and the variable the path of the file.
    env: str = ""
    file: str = ""
    #: Sections of the options whose tasks get it; empty: all.
    jobs: frozenset[str] = frozenset()
    #: Whether a program that runs gets a new value too: its file is written again, and it gets SIGHUP.
    reloads: bool = False

    @property
    def reference(self) -> Source | None:
        """What the agent resolves, where this is such a source; all others the executor fetches from us."""
        scheme, _, rest = self.source.partition(":")
        name, _, key = rest.partition("#")
        return Source(scheme, name, key) if scheme == "reference" else None

    def is_for(self, section: str) -> bool:
        """Whether the tasks of that section get it."""
        return not self.jobs or section in self.jobs


@dataclass(frozen=True, slots=True)
class Delivery:
    """How executors get the values from the scheduler."""

    #: Where they reach its API, such as http://10.0.0.1:8080; known when that listens.
    url: str = ""
    #: Seconds after the launch in which its token is good.
    expires: float = 600.0
    #: Whether only the agent that the task was launched on may ask.
    from_agent_only: bool = True
    #: Seconds between two questions of a task whether a secret that reloads has another value.
    reload_every: float = 60.0
    #: File of certificates that executors shall trust there, and its content; empty: those of their machines.
    ca_file: str = ""
    authorities: str = ""


@dataclass(frozen=True, slots=True)
class VaultAccess:
    """How to read Vault; `token` and `secret_id` are sources."""

    address: str = ""
    namespace: str = ""
    ca_file: str = ""
    token: str = "env:VAULT_TOKEN"  # noqa: S105 - where it is
    role_id: str = ""
    secret_id: str = "env:VAULT_SECRET_ID"  # noqa: S105


class Hidden:
    """A text that is not shown by accident: whoever wants it says so."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text."""
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hidden) and other.reveal() == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return "***"


@dataclass(frozen=True, slots=True)
class Access:
    """How the scheduler gets at values, its own among them."""

    #: Below it lie the files of `file:` sources.
    directory: str = "/run/secrets"
    vault: VaultAccess = field(default_factory=VaultAccess)
    #: Of DC/OS; empty: where its service account logs in.
    dcos_url: str = ""
    dcos_ca_file: str = ""
    #: Source of the principal's secret; empty: Mesos asks for none.
    mesos_secret: str = ""
    #: Values that stand in the options themselves.
    inline: Mapping[str, Hidden] = field(default_factory=dict)
