"""Derive the lane of a test from its fixtures.

A test without a fixture of a real lane is pure. A fixture or test that starts real processes requests `real_<lane>`. A
pure test that starts Mesos, ZooKeeper, Chromium or an object store nevertheless fails.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import pytest

from mesos_local.node import MesosNode, ZooKeeperNode

#: Lanes with real processes. A test that uses several fixtures is in the first of their lanes.
REAL = (
    *("versions", "image", "release", "dcos", "containers", "storage"),
    *("browser", "tensorflow", "zookeeper", "mesos"),
)
PURE = "pure"
_FIXTURES = {f"real_{lane}": lane for lane in REAL}
#: A fixture's parameter that makes its test real names the lane in a mark with this name.
_PARAMETER = "lane"
#: Of the test that runs; empty outside of tests.
_lane = ""


def lane_of(item: pytest.Item) -> str:
    """Return the lane of a collected test."""
    fixtures: Iterable[str] = getattr(item, "fixturenames", ())
    lanes = {_FIXTURES[name] for name in fixtures if name in _FIXTURES}
    lanes |= {mark.args[0] for mark in item.iter_markers(_PARAMETER)}
    return next((lane for lane in REAL if lane in lanes), PURE)


def require_real() -> None:
    """Fail if the running test is pure; called where real processes start."""
    assert _lane != PURE, "a pure test starts real processes: request the fixture real_mesos, or that of another lane"


def parameter(lane: str, value: Any) -> Any:
    """Return a parameter of a fixture with which the fixture starts real processes."""
    return pytest.param(value, marks=pytest.mark.lane(lane))


def pytest_configure(config: pytest.Config) -> None:
    for lane in (PURE, *REAL):
        config.addinivalue_line("markers", f"{lane}: derived from the fixtures of the test")
    config.addinivalue_line("markers", "real: starts real processes; derived from the fixtures of the test")
    for kind in (MesosNode, ZooKeeperNode):
        _refuse_in_pure_tests(kind)


def pytest_itemcollected(item: pytest.Item) -> None:
    lane = lane_of(item)
    item.add_marker(lane)
    if lane != PURE:
        item.add_marker("real")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run files that train or start clusters first, so that none of them begins last.

    By turns: trainings take the processors, clusters mostly wait.
    """
    lanes: dict[Path, set[str]] = {}
    for item in items:
        lanes.setdefault(item.path, set()).add(lane_of(item))
    train = [path for path, names in lanes.items() if names & {"tensorflow", "versions"}]
    wait = [path for path, names in lanes.items() if names != {PURE} and path not in train]
    first = [path for path in chain.from_iterable(zip_longest(train, wait)) if path]
    order = {path: number for number, path in enumerate([*first, *(path for path in lanes if path not in first)])}
    items.sort(key=lambda item: order[item.path])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    global _lane
    _lane = lane_of(item)
    try:
        return (yield)
    finally:
        _lane = ""


def _refuse_in_pure_tests(kind: type) -> None:
    launch: Callable[..., None] = kind.launch  # type: ignore[attr-defined]

    def checked(node: Any) -> None:
        require_real()
        launch(node)

    kind.launch = checked  # type: ignore[attr-defined]


def _fixture(lane: str) -> Any:
    @pytest.fixture(scope="session", name=f"real_{lane}")
    def fixture() -> None:
        """Put the tests that request it into its lane."""

    return fixture


real_mesos, real_zookeeper, real_tensorflow = _fixture("mesos"), _fixture("zookeeper"), _fixture("tensorflow")
real_browser, real_storage, real_containers = _fixture("browser"), _fixture("storage"), _fixture("containers")
real_dcos, real_release, real_image = _fixture("dcos"), _fixture("release"), _fixture("image")
real_versions = _fixture("versions")
