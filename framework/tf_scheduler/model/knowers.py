"""Who must know every address of the ClusterSpec."""

from __future__ import annotations

from collections.abc import Mapping

from .spec import JobKind, Strategy

#: Strategy -> jobs whose tasks must know every address; when one changes, they must start anew (measured: design of
#: healing). The others need no more than their own, and are told by those who know.
KNOWERS: Mapping[Strategy, frozenset[JobKind]] = {
    Strategy.PARAMETER_SERVER: frozenset({JobKind.CHIEF}),
    Strategy.MULTI_WORKER_MIRRORED: frozenset({JobKind.CHIEF, JobKind.WORKER}),
    Strategy.BETWEEN_GRAPH: frozenset({JobKind.CHIEF, JobKind.WORKER, JobKind.PS}),
    Strategy.INDEPENDENT: frozenset(),
    Strategy.PYTORCH_DDP: frozenset({JobKind.CHIEF, JobKind.WORKER}),
    Strategy.HOROVOD: frozenset({JobKind.CHIEF, JobKind.WORKER}),
}
