"""Rerun real-process tests once; report them, and fail the run above a limit."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from .lanes import PURE, lane_of

#: Maximum number of tests in one run that may need a rerun.
LIMIT = 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    for item in items:
        # Real processes may be late on a busy machine. A pure test that fails is a defect.
        if lane_of(item) != PURE:
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if len(_rerun(session.config)) > LIMIT and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if reports := _rerun(config):
        terminalreporter.section(f"{len(reports)} tests needed a rerun; maximum {LIMIT}", red=len(reports) > LIMIT)
        for name, report in sorted(reports.items()):
            terminalreporter.line(f"{name} ({report.when})")
            terminalreporter.line(report.longreprtext)
    if (seed := config.getoption("randomly_seed", None)) is not None:
        terminalreporter.line(f"random order: repeat it with --randomly-seed={seed}")


def _rerun(config: pytest.Config) -> dict[str, pytest.TestReport]:
    """Failed reports of rerun tests by name; pytest-xdist's controller has them all."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return {report.nodeid: report for report in reporter.stats.get("rerun", ())} if reporter else {}
