"""Durations and limits of the core.

Operators see most of them, and the documents promise some of them, so a change must be intended.
"""

from types import ModuleType

import pytest

from tf_scheduler.core import connection_problems, framework
from tf_scheduler.core.launch import cluster_spec, secret_tokens
from tf_scheduler.core.offers import rounds
from tf_scheduler.core.placement import agents, constraints, matching
from tf_scheduler.core.plans import scheduling
from tf_scheduler.core.recovery import (
    failure_causes,
    reconcile,
    recover,
    replacement,
    startup_timeout,
)
from tf_scheduler.core.state import after_job, backoff, reducer, spec_index
from tf_scheduler.model import offer

#: Seconds.
DURATIONS = (
    (scheduling, "STOP_TIMEOUT", 80.0),
    (offer, "MATCH_INTERVAL", 1.0),
    (rounds, "REFUSE_LONG", 3600.0),
    (rounds, "REFUSE_SHORT", 1.0),
    (rounds, "NO_OFFER_WARNING_SECONDS", 10.0),
    (constraints, "MOVE_AHEAD", 60.0),
    (scheduling, "KILL_INTERVAL", 10.0),
    (connection_problems, "REPORT_AGAIN", 600.0),
    (failure_causes, "SAME_INCIDENT_SECONDS", 5.0),
    (recover, "ASK_INTERVAL", 30.0),
    (reducer, "LAUNCH_TIMEOUT", 30.0),
    (reconcile, "FIRST_WAIT", 5.0),
    (reconcile, "LONGEST_WAIT", 60.0),
    (reconcile, "FULL_INTERVAL", 900.0),
    (reconcile, "ABANDONED_INTERVAL", 30.0),
    (reconcile, "MAX_ABANDONED_AGE", 14 * 24 * 3600.0),
    (recover, "STEADY_SECONDS", 60.0),
    (replacement, "PREVIOUS_ADDRESS_WAIT", 5.0),
    (replacement, "EARLY_SECONDS", 3600.0),
    (startup_timeout, "LATE_LAUNCHES_COUNT", 3600.0),
    (startup_timeout, "CHECK_INTERVAL", 1.0),
    (startup_timeout, "RECONNECT_GRACE", 60.0),
    (reducer, "MIN_LAUNCH_SECONDS", 60.0),
    (after_job, "AGENT_WAIT", 600.0),
    (backoff, "MIN_DELAY", 1.0),
    (backoff, "MAX_WINDOW", 60.0),
    (rounds, "REVIVE_INTERVAL", 5.0),
    (rounds, "REVIVE_BURST", 8),
    (reducer, "COLLATERAL_SECONDS", 20.0),
)
#: How many are kept, named or allowed.
NUMBERS = (
    (framework, "_NAMED", 5),
    (rounds, "MAX_AGENT_SNAPSHOTS", 2000),
    (matching, "MAX_LISTED_AGENTS", 20),
    (scheduling, "CANARIES", 2),
    (connection_problems, "MAX_CAUSES", 16),
    (secret_tokens, "_MAX_PLACES", 5),
    (connection_problems, "_MAX_CAUSE", 200),
    (failure_causes, "_FORGOTTEN_TOGETHER", 10),
    (reconcile, "MAX_ABANDONED", 1000),
    (recover, "MAX_BAD_ADDRESSES", 16),
    (startup_timeout, "MAX_LATE_LAUNCHES", 2),
    (startup_timeout, "_NAMED", 5),
    (after_job, "_NAMED", 5),
    (backoff, "_FREE_RETRIES", 1),
    (reducer, "MAX_RECENT_LOSSES", 50),
    (spec_index, "_LAST", 8),
)
#: Fixed by TensorFlow, by shells, or by stored records.
CONVENTIONS = (
    (cluster_spec, "PORT", 2222),
    (agents, "PORTS_INDEX", 4),
    (failure_causes, "RESTART_EXIT_CODES", frozenset({42, 143})),
    (failure_causes, "_SHELL_SIGNALS", range(129, 160)),
)


@pytest.mark.parametrize(("module", "name", "value"), [*DURATIONS, *NUMBERS, *CONVENTIONS])
def test_limit_has_its_promised_value(module: ModuleType, name: str, value: object) -> None:
    assert value == getattr(module, name)
