"""The uninstall plan under the name `deploy`: so DC/OS asks for it (dcos/cosmos, ServiceUninstaller), as of the SDK."""

from __future__ import annotations

from dataclasses import replace

from tf_scheduler.model.plan import Plan
from tf_scheduler.model.state import SchedulerState

from . import plans

#: Why a service stops that is being uninstalled.
REASON = "the service is being uninstalled"


def uninstall_plan(state: SchedulerState) -> Plan:
    """Complete when nothing of the service is left in Mesos."""
    return replace(plans.uninstall_plan(state), name=plans.DEPLOY)
