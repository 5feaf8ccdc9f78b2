"""HTML out of Python, with everything that comes from users escaped. Pure."""

from __future__ import annotations

import html
from collections.abc import Iterable
from datetime import datetime, timezone


class Html(str):
    """Text that is HTML already; every other text is escaped when it gets into a tag."""

    __slots__ = ()


def tag(name: str, *content: object, **attributes: object) -> Html:
    """`tag("p", "a < b", class_="x")`; None leaves an attribute out, underscores in names become dashes."""
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{told}>{join(*content)}</{name}>")


def join(*content: object) -> Html:
    """One after the other; lists are taken apart."""
    return Html("".join(_text(item) for item in content))


def _text(item: object) -> str:
    if isinstance(item, Html):
        return str(item)
    if isinstance(item, str):
        return html.escape(item)
    if isinstance(item, Iterable):
        return "".join(_text(part) for part in item)
    return "" if item is None else html.escape(str(item))


def table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> Html:
    """Scrolls by itself where the screen is narrow."""
    top = tag("thead", tag("tr", [tag("th", cell) for cell in head]))
    body = tag("tbody", [tag("tr", [tag("td", cell) for cell in row]) for row in rows])
    return tag("div", tag("table", top, body), class_="scroll")


def seconds(value: float | None) -> str:
    """`8.2 s`, `3 min 20 s`, `2 h 5 min`."""
    if value is None:
        return "–"
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def number(value: float | None) -> str:
    """Four digits, whatever the size."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def moment(value: float) -> str:
    """Seconds since the epoch, as people read it."""
    return datetime.fromtimestamp(value, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
