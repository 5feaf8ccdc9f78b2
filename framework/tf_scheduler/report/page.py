"""Render a recorded run as one HTML page: summary, tasks, events and curves."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tf_executor.contract.states import tone_of
from tf_executor.contract.text import UNKNOWN, format_duration, format_number
from tf_scheduler.history.compare import compare_results
from tf_scheduler.history.model import RecordedLaunch, Run

from .charts import (
    Html,
    format_time,
    join,
    progress_charts,
    table,
    tag,
    timeline,
)

STYLE = """
:root{color-scheme:light dark;--ground:#f6f7f9;--card:#fff;--ink:#1b2330;--soft:#667085;--line:#e3e7ee;
--good:#1f9d61;--bad:#d6453d;--asked:#8a94a6;--going:#3b7ddd;--wait:#f0b445;
--c0:#3b7ddd;--c1:#e2731d;--c2:#1f9d61;--c3:#a64dc4;--c4:#c9a20c;--c5:#d6457c}
@media(prefers-color-scheme:dark){:root{--ground:#11151c;--card:#1a2029;--ink:#e6eaf1;--soft:#98a3b5;--line:#2c3542;
--good:#36b87a;--bad:#ee6a62;--asked:#6d788b;--going:#5b97ee;--wait:#d99f36;
--c0:#6aa3f5;--c1:#f0914a;--c2:#4cc78c;--c3:#c07fdb;--c4:#dfc04a;--c5:#ec74a0}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1080px;margin:0 auto;padding:24px 16px 48px}
h1{font-size:26px;margin:0;display:inline;overflow-wrap:anywhere}
h2{font-size:13px;letter-spacing:.06em;text-transform:uppercase;color:var(--soft);margin:0 0 12px}
header p{margin:6px 0 0;color:var(--soft);overflow-wrap:anywhere}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:18px;margin-top:16px}
.pill{display:inline-block;margin-left:12px;padding:2px 12px;border-radius:99px;color:#fff;font-weight:600;
font-size:14px;vertical-align:4px;background:var(--asked)}
.pill.succeeded{background:var(--good)}.pill.failed,.pill.refused{background:var(--bad)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(112px,1fr));gap:12px;margin-top:16px}
.tile{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:12px 14px}
.tile b{display:block;font-size:17px;white-space:nowrap;font-variant-numeric:tabular-nums}
.tile span,.none,small{color:var(--soft);font-size:13px;overflow-wrap:anywhere}
.none{margin:0}
.row{display:flex;align-items:stretch;min-height:40px}
.label{flex:0 0 150px;padding-right:12px;overflow:hidden;line-height:1.25;align-self:center}
.label b,.label small{display:block;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.label small{font-size:12px}
.lane{position:relative;flex:1;min-width:0;border-bottom:1px solid var(--line)}
.lane .grid{position:absolute;top:0;bottom:0;border-left:1px dashed var(--line)}
.lane .bar,.lane .wait{position:absolute;top:9px;bottom:9px;border-radius:4px;overflow:hidden;min-width:2px}
.bar{color:#fff;font-size:12px;line-height:21px;padding-left:6px;white-space:nowrap}
.wait{background:var(--wait)}
.good{background:var(--good)}.bad{background:var(--bad)}.asked{background:var(--asked)}.going,.busy{background:var(--going)}
.axis{border:0}.axis span{position:absolute;top:6px;font-size:12px;color:var(--soft);transform:translateX(-50%)}
.axis span:first-child{transform:none}
.keys{display:flex;flex-wrap:wrap;gap:4px 16px;margin:10px 0 0;padding:0;list-style:none;font-size:13px;
color:var(--soft)}
.dot{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:6px}
.agents{display:grid;grid-template-columns:repeat(auto-fill,minmax(230px,1fr));gap:12px}
.agent{border:1px solid var(--line);border-radius:10px;padding:12px}
.agent p{margin:0 0 8px;color:var(--soft);font-size:12px;overflow-wrap:anywhere}
.chip{display:inline-block;margin:0 6px 6px 0;padding:2px 10px;border-radius:99px;color:#fff;font-size:13px}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,380px),1fr));gap:20px}
figure{margin:0;min-width:0}figcaption{font-weight:600;margin-bottom:8px}
.frame{display:flex;height:220px}
.words{position:relative;flex:0 0 56px}
.words span{position:absolute;right:8px;transform:translateY(-50%);font-size:12px;color:var(--soft)}
.plot{position:relative;flex:1;min-width:0;border-left:1px solid var(--line);border-bottom:1px solid var(--line)}
.plot svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible}
.level{position:absolute;left:0;right:0;border-top:1px dashed var(--line)}
.joined{position:absolute;top:0;bottom:0;overflow:hidden;border-left:1px dashed var(--soft);padding-left:3px;
font-size:12px;white-space:nowrap;display:flex;align-items:end}
.line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round;vector-effect:non-scaling-stroke}
.under{position:relative;height:22px;margin-left:56px}
.under span{position:absolute;top:3px;font-size:12px;color:var(--soft);transform:translateX(-50%)}
.under span:first-child{transform:none}
.legend{display:flex;flex-wrap:wrap;gap:2px 16px;margin:6px 0 0 56px;padding:0;list-style:none;font-size:13px}
.c0{stroke:var(--c0)}.c1{stroke:var(--c1)}.c2{stroke:var(--c2)}.c3{stroke:var(--c3)}
.c4{stroke:var(--c4)}.c5{stroke:var(--c5)}
.dot.c0{background:var(--c0)}.dot.c1{background:var(--c1)}.dot.c2{background:var(--c2)}.dot.c3{background:var(--c3)}
.dot.c4{background:var(--c4)}.dot.c5{background:var(--c5)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:13px;font-variant-numeric:tabular-nums}
th{text-align:left;color:var(--soft);font-weight:500}
th,td{padding:5px 12px 5px 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}
tr:last-child td{border-bottom:0}.when{white-space:nowrap}
pre{margin:0;white-space:pre-wrap;overflow-wrap:anywhere;font:12.5px/1.5 ui-monospace,Menlo,Consolas,monospace}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:0 16px}
summary{cursor:pointer;color:var(--soft)}
footer{margin-top:24px;color:var(--soft);font-size:13px}
@media(max-width:560px){.label{flex-basis:92px}section{padding:14px}h1{font-size:22px}.pill{margin-left:8px}
.axis span:nth-child(even),.under span:nth-child(even){display:none}}
"""


#: Forbid loading and scripts, so that users' names stay text.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_KEYS = (
    ("wait", "launched and not yet running, or waiting"),
    ("busy", "starting"),
    ("good", "finished"),
    ("asked", "stopped by the scheduler"),
    ("bad", "failed or lost"),
    ("going", "still running"),
)
#: Maximum rows of the table of launches.
_MAX_LAUNCHES = 500


def render_page(run: Run) -> str:
    """Return a self-contained HTML document."""
    footer = tag("footer", f"Logs and checkpoints: {run.folder}" if run.folder else "")
    return _document(f"{run.service}: {run.state}", _header(run), _tiles(run), _sections(run), footer)


def render_comparison(old: Run, new: Run) -> str:
    """Return an HTML document with the results and the curves of two runs."""
    curves = {
        run.id: tuple(replace(point, time=point.time - run.submitted) for point in run.curves.get(run.leader or "", ()))
        for run in (old, new)
    }
    results = [(item.name, _cell(item.old), _cell(item.new)) for item in compare_results(old, new)]
    return _document(
        f"{old.id} and {new.id}",
        tag("header", tag("h1", f"{old.id} and {new.id}")),
        _section("Progress of the leading tasks", progress_charts(replace(new, submitted=0.0, curves=curves))),
        _section("Results", table(("", old.id, new.id), results)),
    )


def _cell(value: Any) -> str:
    return format_number(value) if value is None or isinstance(value, int | float) else str(value)


def _document(title: str, *content: object) -> str:
    head = join(
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        tag("title", title),
        tag("style", Html(STYLE)),
    )
    return "<!doctype html>\n" + tag("html", tag("head", head), tag("body", tag("main", *content)), lang="en") + "\n"


def _header(run: Run) -> Html:
    when = f"{format_time(run.submitted)} · {run.id}"
    pill = tag("span", run.state, class_=f"pill {run.state}")
    note = tag("p", run.note) if run.note else ""
    return tag("header", tag("h1", run.service), pill, tag("p", run.reason), tag("p", when), note)


def _tiles(run: Run) -> Html:
    last = run.last
    results = (
        (format_duration(run.seconds), "total"),
        (format_duration(run.first_step), "to the first step"),
        (format_number(last.step), "steps"),
        (format_number(last.loss), "last loss"),
        *((format_number(value), f"last {name}") for name, value in last.metrics.items()),
        *((format_number(value), f"best {name}") for name, value in run.best.items()),
        (format_number(last.speed), f"{last.unit} a second (median)"),
        (str(len({launch.task for launch in run.launches})), "tasks"),
        (str(run.restarts), "restarts"),
        (str(len({launch.generation for launch in run.launches})), "generations"),
    )
    known = [(value, name) for value, name in results if value != UNKNOWN]
    return tag(
        "div", [tag("div", tag("b", value), tag("span", name), class_="tile") for value, name in known], class_="tiles"
    )


def _sections(run: Run) -> Iterable[Html]:
    used = {tone_of(launch.state).value for launch in run.launches} | {"wait"}
    keys = [tag("li", tag("i", class_=f"dot {name}"), text) for name, text in _KEYS if name in used]
    yield _section("Timeline", timeline(run), tag("ul", keys, class_="keys") if run.launches else "")
    yield _section("Progress", progress_charts(run))
    yield _section("Placement", _placement(run))
    if run.warnings:
        times = [format_duration(item.time - run.submitted) for item in run.warnings]
        rows = [(tag("span", at, class_="when"), item.message) for at, item in zip(times, run.warnings, strict=True)]
        yield _section("Warnings", table(("after", "warning"), rows))
    environment = table(("what", "version"), run.environment.items())
    options = tag("pre", json.dumps(run.options, indent=2))
    yield tag("div", _section("Environment", environment), _section("Options", options), class_="two")
    if run.launches:
        details = tag("details", tag("summary", f"{len(run.launches)} launches"), _launches(run))
        yield _section("Launches", details)


def _section(title: str, *content: object) -> Html:
    return tag("section", tag("h2", title), *content)


def _placement(run: Run) -> Html:
    """Return each agent with its tasks, coloured by their last launch."""
    names = [*run.agents, *(launch.agent for launch in run.launches if launch.agent not in run.agents)]
    cards = []
    for name in dict.fromkeys(names):
        mine = {launch.id: launch for launch in run.launches if launch.agent == name}
        chips = [_chip(launch) for launch in mine.values()] or tag("span", "no task", class_="none")
        cards.append(tag("div", tag("b", name), tag("p", run.agents.get(name, "")), chips, class_="agent"))
    return tag("div", cards, class_="agents") if cards else tag("p", "Nothing was placed.", class_="none")


def _chip(launch: RecordedLaunch) -> Html:
    title = f"generation {launch.generation}, {launch.state}"
    return tag("span", launch.task, class_=f"chip {tone_of(launch.state).value}", title=title)


def _launches(run: Run) -> Html:
    def after(time: float | None) -> str:
        return format_duration(None if time is None else time - run.submitted)

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
        for launch in run.launches[:_MAX_LAUNCHES]
    ]
    head = ("task", "gen", "agent", "address", "launched", "running", "ended", "state", "exit", "why")
    return table(head, rows)
