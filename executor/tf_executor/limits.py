"""User, resource limits and niceness of the task's processes: checked before the fork, set between fork and exec."""

from __future__ import annotations

import os
import pwd
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Mapping, Sequence

_LIMITS = {name[len("RLIMIT_") :].lower(): number for name, number in vars(resource).items() if name[:7] == "RLIMIT_"}
_UNLIMITED = -1


class LimitsError(ValueError):
    """What the options want cannot be had on this agent."""


@dataclass(frozen=True)
class Limits:
    """Everything resolved, so that the child only makes system calls."""

    nice: int = 0
    #: (number of the limit, (soft, hard))
    ulimits: tuple[tuple[int, tuple[int, int]], ...] = ()
    #: User id, group id, all groups; None: the user stays.
    identity: tuple[int, int, tuple[int, ...]] | None = None

    def apply(self) -> None:
        """In the child. Raising a hard limit and lowering niceness need the rights that the user may not have."""
        for number, pair in self.ulimits:
            resource.setrlimit(number, pair)
        if self.nice:
            os.nice(self.nice)
        if self.identity is not None:
            user, group, groups = self.identity
            os.setgroups(groups)
            os.setgid(group)
            os.setuid(user)


def resolve(user: str, nice: int, ulimits: Mapping[str, Sequence[int]]) -> Limits:
    """Raise LimitsError with a sentence for what is unknown or not allowed here."""
    if nice < 0 and os.geteuid() != 0:
        raise LimitsError(f"nice is {nice}: only an executor that runs as root may lower the niceness")
    pairs = [_soft_core_of_none(), *(_pair(name, limit) for name, limit in ulimits.items())]
    return Limits(nice, tuple(dict(pairs).items()), _identity(user))


def _soft_core_of_none() -> tuple[int, tuple[int, int]]:
    """No core files by default: one of a TensorFlow process fills a disk. The hard limit is left to the user."""
    return resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1])


def _pair(name: str, limit: Sequence[int]) -> tuple[int, tuple[int, int]]:
    if name not in _LIMITS:
        raise LimitsError(f"there is no resource limit {name!r}; there are {', '.join(sorted(_LIMITS))}")
    soft, hard = (resource.RLIM_INFINITY if value == _UNLIMITED else value for value in limit)
    if _amount(soft) > _amount(hard):
        raise LimitsError(f"ulimit {name}: the soft limit {limit[0]} is above the hard limit {limit[1]}")
    allowed = resource.getrlimit(_LIMITS[name])[1]
    if _amount(hard) > _amount(allowed) and os.geteuid() != 0:
        raise LimitsError(f"ulimit {name}: {limit[1]} is above what this agent allows, {allowed}")
    return _LIMITS[name], (soft, hard)


def _amount(limit: int) -> float:
    return float("inf") if limit == resource.RLIM_INFINITY else limit


def _identity(user: str) -> tuple[int, int, tuple[int, ...]] | None:
    """None when we are that user, or are not root: then the agent has decided who runs the tasks."""
    if not user or os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise LimitsError(f"there is no user {user!r} on this agent") from None
    if entry.pw_uid == 0:
        return None
    return entry.pw_uid, entry.pw_gid, tuple(os.getgrouplist(user, entry.pw_gid))


def in_child(limits: Limits, then: Callable[[], None], complaints: int) -> Callable[[], None]:
    """For `preexec_fn`: apply, then go on; what goes wrong is written to the descriptor `complaints`.

    subprocess itself tells nobody what an exception there was.
    """

    def prepare() -> None:
        try:
            limits.apply()
            then()
        except (OSError, ValueError) as error:
            os.write(complaints, f"user, nice or ulimits cannot be set: {error}".encode())
            raise

    return prepare


def hand_over(sandbox: Path, user: int, group: int) -> None:
    """Give the working directory and what lies in it to the user who runs the program; Mesos would do the same.

    Not what lies deeper, as that may be a volume with a million files. Raise OSError.
    """
    for path in (sandbox, *sandbox.iterdir()):
        os.chown(path, user, group, follow_symlinks=False)
