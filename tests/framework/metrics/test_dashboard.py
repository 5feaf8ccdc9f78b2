"""Metrics named by metrics.md and the dashboard exist and are produced."""

import json
from pathlib import Path

import promql_parser as promql
import pytest

from metered_world import a_life

DOCS = Path(__file__).resolve().parents[3] / "docs" / "reference"
DASHBOARD = json.loads((DOCS / "grafana-dashboard.json").read_text())
#: What Prometheus itself adds, and what Grafana fills in.
OF_THE_SCRAPE = {"job", "instance"}
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target for panel in PANELS for target in panel["targets"]]
#: What a series has beside those of its family.
OF_A_HISTOGRAM = {"le"}


@pytest.fixture(scope="module")
def families():
    return list(a_life().meter.loop.registry.collect())


@pytest.fixture(scope="module")
def series(families):
    """Name of a series -> names of its labels."""
    return {sample.name: set(sample.labels) for family in families for sample in family.samples}


def selectors(expression):
    """Every selector in it."""
    if isinstance(expression, promql.VectorSelector):
        yield expression
    parts = ("expr", "lhs", "rhs", "vector_selector", "args", "param")
    for part in (getattr(expression, name, None) for name in parts):
        for item in part if isinstance(part, list) else [part]:
            yield from selectors(item) if item is not None else ()


def groupings(expression):
    """Every label by which it sums."""
    if isinstance(expression, promql.AggregateExpr) and expression.modifier is not None:
        yield from expression.modifier.labels
    for part in (getattr(expression, name, None) for name in ("expr", "lhs", "rhs", "args")):
        for item in part if isinstance(part, list) else [part]:
            yield from groupings(item) if item is not None else ()


@pytest.mark.parametrize("target", QUERIES, ids=lambda target: target["expr"][:60])
def test_dashboard_queries_use_existing_metrics(target, series) -> None:
    """Names, matched labels, grouping labels, labels in the legend."""
    query = promql.parse(target["expr"].replace("$job", "digits"))
    matches = list(selectors(query))

    assert matches
    for selector in matches:
        assert selector.name in series
        labels = series[selector.name] | OF_THE_SCRAPE
        assert {matcher.name for matcher in selector.matchers.matchers} <= labels
        assert "job" in {matcher.name for matcher in selector.matchers.matchers}
        assert set(groupings(query)) <= labels
        names = {part.partition("}}")[0].strip() for part in target["legendFormat"].split("{{")[1:]}
        assert names <= (set(groupings(query)) or labels)


def test_no_label_is_reserved_by_prometheus(series) -> None:
    """It would rename the label."""
    assert set() == OF_THE_SCRAPE & {label for labels in series.values() for label in labels}


def test_dashboard_shows_most_metrics(families) -> None:
    words = json.dumps(DASHBOARD)
    unseen = [item.name for item in families if item.name.startswith("tensorflow_") and item.name not in words]

    assert {
        "tensorflow_calls_queued",
        "tensorflow_deadline_seconds",
        "tensorflow_events_queued",
        "tensorflow_failed_calls",
        "tensorflow_reasons",
        "tensorflow_skipped_events",
        "tensorflow_suppressed",
        "tensorflow_task_statuses",
        "tensorflow_training_epoch",
        "tensorflow_training_examples",
    } >= set(unseen)


def test_panels_do_not_overlap_and_have_unique_ids() -> None:
    """Grafana's grid is 24 units wide."""
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len(DASHBOARD["panels"]) == len({panel["id"] for panel in DASHBOARD["panels"]})


def test_page_lists_every_metric(families) -> None:
    """Name in Prometheus, type, labels, description. Prints the expected table."""
    rows = ["| metric | type | labels | |", "| --- | --- | --- | --- |"]
    for family in sorted(families, key=lambda item: item.name):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels} - OF_A_HISTOGRAM
        names = ", ".join(f"`{label}`" for label in sorted(labels))
        rows.append(f"| `{name}` | {family.type} | {names} | {family.documentation} |")
    table = "\n".join(rows)

    text = (DOCS / "metrics.md").read_text()
    assert table == text.partition("<!-- metrics -->\n")[2].partition("\n<!-- end -->")[0], f"\n{table}\n"
