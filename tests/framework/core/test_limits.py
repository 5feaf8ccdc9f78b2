"""Durations (in seconds) and limits of the core.

Operators see most of them, and the documents promise some of them, so a change must be intended.
"""

from importlib import import_module

import pytest

LIMITS: dict[str, dict[str, object]] = {
    "core.connection_problems": {"REPORT_AGAIN": 600.0, "_MAX_CAUSE": 200},
    "core.framework": {"_NAMED": 5},
    "core.launch.cluster_spec": {"PORT": 2222},
    "core.launch.secret_tokens": {"_MAX_PLACES": 5},
    "core.offers.rounds": {
        "REFUSE_LONG": 3600.0,
        "REFUSE_SHORT": 1.0,
        "NO_OFFER_WARNING_SECONDS": 10.0,
        "REVIVE_INTERVAL": 5.0,
        "REVIVE_BURST": 8,
        "MAX_AGENT_SNAPSHOTS": 2000,
    },
    "core.placement.agents": {"PORTS_INDEX": 4},
    "core.placement.constraints": {"MOVE_AHEAD": 60.0},
    "core.placement.matching": {"MAX_LISTED_AGENTS": 20},
    "core.plans.scheduling": {"STOP_TIMEOUT": 80.0, "KILL_INTERVAL": 10.0, "CANARIES": 2},
    "core.recovery.failure_causes": {
        "SAME_INCIDENT_SECONDS": 5.0,
        "_FORGOTTEN_TOGETHER": 10,
        "RESTART_EXIT_CODES": frozenset({42, 143}),
        "_SHELL_SIGNALS": range(129, 160),
    },
    "core.recovery.reconcile": {
        "FIRST_WAIT": 5.0,
        "LONGEST_WAIT": 60.0,
        "FULL_INTERVAL": 900.0,
        "ABANDONED_INTERVAL": 30.0,
        "MAX_ABANDONED_AGE": 14 * 24 * 3600.0,
        "MAX_ABANDONED": 1000,
    },
    "core.recovery.recover": {"ASK_INTERVAL": 30.0, "STEADY_SECONDS": 60.0, "MAX_BAD_ADDRESSES": 16},
    "core.recovery.replacement": {"PREVIOUS_ADDRESS_WAIT": 5.0, "EARLY_SECONDS": 3600.0},
    "core.recovery.startup_timeout": {
        "LATE_LAUNCHES_COUNT": 3600.0,
        "CHECK_INTERVAL": 1.0,
        "RECONNECT_GRACE": 60.0,
        "MAX_LATE_LAUNCHES": 2,
        "_NAMED": 5,
    },
    "core.state.after_job": {"AGENT_WAIT": 600.0, "_NAMED": 5},
    "core.state.backoff": {"MIN_DELAY": 1.0, "MAX_WINDOW": 60.0, "_FREE_RETRIES": 1},
    "core.state.reducer": {
        "LAUNCH_TIMEOUT": 30.0,
        "MIN_LAUNCH_SECONDS": 60.0,
        "COLLATERAL_SECONDS": 20.0,
        "MAX_RECENT_LOSSES": 50,
    },
    "core.state.spec_index": {"_LAST": 8},
    "model.offer": {"MATCH_INTERVAL": 1.0},
}


@pytest.mark.parametrize("module", LIMITS)
def test_limits_have_their_promised_values(module: str) -> None:
    values = vars(import_module(f"tf_scheduler.{module}"))

    assert LIMITS[module] == {name: values[name] for name in LIMITS[module]}
