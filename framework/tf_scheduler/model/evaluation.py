"""What the scheduler made of its offers: rounds, and the last decisions with every reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .ids import TaskName
from .reasons import Reason

#: So many decisions on offers are kept.
KEPT_EVALUATIONS = 50


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One attempt to place the tasks that were wanted on the offers that were there."""

    #: Seconds since the epoch.
    at: float
    offers: int
    agents: int
    #: Where tasks went, and why there; empty unless all of them were launched.
    placed: Mapping[TaskName, str] = field(default_factory=dict)
    #: Why not, for every task, when they were not.
    refused: Mapping[TaskName, tuple[Reason, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gathering:
    """The rounds in which a gang looks for its places. Times in seconds since the epoch."""

    #: When the first offer of this round came; None between rounds.
    started: float | None = None
    #: Rounds in a row that ended without a launch.
    failures: int = 0
    #: Offers that come before this are declined until then: others have their turn.
    back_off_until: float = 0.0


@dataclass(frozen=True, slots=True)
class Bucket:
    """Tokens for calls that cost the master much, as in the SDK: some at once, then few an hour."""

    tokens: float
    #: When `tokens` was right; seconds since the epoch.
    at: float = 0.0
    #: When the last token was taken.
    taken_at: float = 0.0


#: The SDK's (dcos-commons, TokenBucket).
FULL_BUCKET = Bucket(256.0)
