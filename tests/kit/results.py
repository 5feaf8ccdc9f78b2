"""Record what each test took; print lanes and the slowest tests.

pytest --results=FILE ...        adds the tests of this run to the file
python -m kit.results FILE       prints the tables; exit code 1 if a test failed
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from .lanes import PURE, REAL, lane_of

SLOWEST = 20
#: Seconds; a test that takes longer gives the reason in a paragraph of its docstring that begins with this word.
LONG, REASON = 60.0, "Slow:"


@dataclass(frozen=True, slots=True)
class Result:
    """One test; `outcome` is the word of pytest's closing line.

    `seconds` include set-up and tear-down.
    """

    test: str
    lane: str
    outcome: str
    seconds: float
    has_reason: bool


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--results", metavar="FILE", help="add outcome and duration of each test to this file")


def pytest_itemcollected(item: pytest.Item) -> None:
    doc: str = getattr(getattr(item, "obj", None), "__doc__", None) or ""
    item.user_properties += [("lane", lane_of(item)), ("reason", f"\n{REASON}" in f"\n{doc}".replace("    ", ""))]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    file = config.getoption("results")
    if file and not hasattr(config, "workerinput"):
        with Path(file).open("a") as stream:
            for result in _results(terminalreporter):
                stream.write(json.dumps(asdict(result)) + "\n")


def _results(reporter: pytest.TerminalReporter) -> list[Result]:
    """Combine the reports of set-up, call and tear-down."""
    seconds: dict[str, float] = defaultdict(float)
    properties: dict[str, dict[str, object]] = {}
    outcomes: dict[str, str] = {}
    for category, reports in reporter.stats.items():
        for report in reports:
            if not isinstance(report, pytest.TestReport):
                continue
            seconds[report.nodeid] += report.duration
            properties[report.nodeid] = dict(report.user_properties)
            if category in ("failed", "error") or outcomes.get(report.nodeid, "") in ("", "rerun"):
                outcomes[report.nodeid] = {"error": "failed"}.get(category, category)
    return [
        Result(
            test, str(properties[test]["lane"]), outcome or "passed", seconds[test], bool(properties[test]["reason"])
        )
        for test, outcome in outcomes.items()
    ]


def describe(results: list[Result]) -> list[str]:
    """Return the tables and, last, the counts as pytest's closing line has them."""
    lines = ["lane         tests   seconds, added up over its tests"]
    for lane in (PURE, *REAL):
        own = [result.seconds for result in results if result.lane == lane]
        lines += [f"{lane:<12} {len(own):5}   {sum(own):7.0f}"] if own else []
    lines.append(f"the {SLOWEST} slowest tests")
    slowest = sorted(results, key=lambda result: -result.seconds)
    lines += [f"{result.seconds:7.1f} s  {result.test}" for result in slowest[:SLOWEST]]
    if unexplained := [result for result in slowest if result.seconds > LONG and not result.has_reason]:
        lines.append(f'above {LONG:.0f} s without a reason ("{REASON} ...") in the docstring')
        lines += [f"{result.seconds:7.1f} s  {result.test}" for result in unexplained]
    lines += [f"FAILED {result.test}" for result in results if result.outcome == "failed"]
    counts = Counter(result.outcome for result in results)
    lines.append(", ".join(f"{counts[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped")))
    return lines


def main() -> None:
    lines = Path(sys.argv[1]).read_text().splitlines()
    results = [Result(**json.loads(line)) for line in lines]
    print("\n".join(describe(results)))
    sys.exit(any(result.outcome == "failed" for result in results))


if __name__ == "__main__":
    main()
