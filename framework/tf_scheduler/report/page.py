"""The page of one run. Pure: a run in, text out."""

from __future__ import annotations

import json
from collections.abc import Iterable

from tf_scheduler.history.model import Launch, Run

from .curves import curves
from .markup import Html, join, moment, number, seconds, table, tag
from .style import STYLE
from .timeline import kind, timeline

#: Nothing may be fetched, and nothing run: whatever a user wrote into a name, it stays text.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_KEYS = (
    ("wait", "launched, not yet running"),
    ("good", "finished"),
    ("asked", "ended by the scheduler"),
    ("bad", "failed or lost"),
    ("going", "still running"),
)
#: Rows of the table of launches.
_MOST_LAUNCHES = 500


def page(run: Run) -> str:
    """One HTML document that needs nothing beside it."""
    head = join(
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        tag("title", f"{run.service}: {run.state}"),
        tag("style", Html(STYLE)),
    )
    body = tag("main", _header(run), _tiles(run), _sections(run), _footer(run))
    return "<!doctype html>\n" + tag("html", tag("head", head), tag("body", body), lang="en") + "\n"


def _header(run: Run) -> Html:
    when = f"{moment(run.submitted)} · {run.id}"
    pill = tag("span", run.state, class_=f"pill {run.state}")
    return tag("header", tag("h1", run.service), pill, tag("p", run.reason), tag("p", when))


def _tiles(run: Run) -> Html:
    last = run.last
    told = (
        (seconds(run.seconds), "in all"),
        (seconds(run.first_step), "to the first step"),
        (number(last.step), "steps"),
        (number(last.loss), "last loss"),
        (number(last.speed), f"{last.unit} a second"),
        (str(len({launch.task for launch in run.launches})), "tasks"),
        (str(run.restarts), "restarts"),
        (str(len({launch.generation for launch in run.launches})), "generations"),
    )
    tiles = [tag("div", tag("b", value), tag("span", name), class_="tile") for value, name in told if value != "–"]
    return tag("div", tiles, class_="tiles")


def _sections(run: Run) -> Iterable[Html]:
    used = {kind(launch) for launch in run.launches} | {"wait"}
    keys = [tag("li", tag("i", class_=f"dot {name}"), said) for name, said in _KEYS if name in used]
    yield _section("Timeline", timeline(run), tag("ul", keys, class_="keys") if run.launches else "")
    yield _section("Progress", curves(run))
    yield _section("Placement", _placement(run))
    if run.told:
        rows = [(_when(run, item.time), item.message) for item in run.told]
        yield _section("What happened", table(("after", "what"), rows))
    environment = table(("what", "version"), run.environment.items())
    options = tag("pre", json.dumps(run.options, indent=2))
    yield tag("div", _section("Environment", environment), _section("Options", options), class_="two")
    if run.launches:
        details = tag("details", tag("summary", f"{len(run.launches)} launches"), _launches(run))
        yield _section("Launches", details)


def _when(run: Run, time: float) -> Html:
    return tag("span", seconds(max(0.0, time - run.submitted)), class_="when")


def _section(title: str, *content: object) -> Html:
    return tag("section", tag("h2", title), *content)


def _placement(run: Run) -> Html:
    """Each agent with the tasks that it had, the last launch of each in its colour."""
    names = [*run.agents, *(launch.agent for launch in run.launches if launch.agent not in run.agents)]
    cards = []
    for name in dict.fromkeys(names):
        mine = {launch.id: launch for launch in run.launches if launch.agent == name}
        chips = [_chip(launch) for launch in mine.values()] or tag("span", "no task", class_="none")
        cards.append(tag("div", tag("b", name), tag("p", run.agents.get(name, "")), chips, class_="agent"))
    return tag("div", cards, class_="agents") if cards else tag("p", "Nothing was placed.", class_="none")


def _chip(launch: Launch) -> Html:
    return tag(
        "span", launch.task, class_=f"chip {kind(launch)}", title=f"generation {launch.generation}, {launch.state}"
    )


def _launches(run: Run) -> Html:
    def after(time: float | None) -> str:
        return "–" if time is None else seconds(max(0.0, time - run.submitted))

    rows = [
        (
            launch.task,
            launch.generation,
            launch.agent,
            launch.address,
            after(launch.launched),
            after(launch.running),
            after(launch.ended),
            launch.state,
            "" if launch.exit_code is None else launch.exit_code,
            launch.replaced or launch.message,
        )
        for launch in run.launches[:_MOST_LAUNCHES]
    ]
    head = ("task", "gen", "agent", "address", "launched", "running", "ended", "state", "exit", "why")
    return table(head, rows)


def _footer(run: Run) -> Html:
    return tag("footer", f"Logs and checkpoints: {run.folder}" if run.folder else "")
