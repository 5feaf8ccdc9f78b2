"""Check that tests leave no framework in the shared cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

import pytest

from mesos_local import master_api
from mesos_local.cluster import LocalCluster
from mesos_local.master_api import MasterUnavailableError, read_status

#: Seconds for a framework whose scheduler has just left to go with it; only what stays is waited for so long.
PATIENCE = 15.0
#: Whether a test, or one of a file, has failed.
FAILED = pytest.StashKey[bool]()


@contextmanager
def no_framework_left(cluster: LocalCluster, test: pytest.Item | pytest.Module) -> Iterator[None]:
    """Tear down frameworks left registered: they would take other tests' resources.

    They fail `test`, unless it has failed already: its own error says more.
    """
    address = cluster.master.address
    before = set(_frameworks(address))
    yield
    failed = test.stash.get(FAILED, False)
    end = time.monotonic() + PATIENCE
    while (left := _frameworks(address, before)) and not failed and time.monotonic() < end:
        threading.Event().wait(0.05)
    for framework_id in left:
        with suppress(MasterUnavailableError):  # it may have gone meanwhile
            master_api.teardown(address, framework_id)
    names = ", ".join(left.values())
    assert failed or not left, f"the test leaves frameworks in the shared cluster: {names}"


def _frameworks(address: str, but: Collection[str] = ()) -> dict[str, str]:
    """Return names by id."""
    found = {framework.framework_id: framework.name for framework in read_status(address).frameworks}
    return {framework_id: name for framework_id, name in found.items() if framework_id not in but}
