"""The tables of docs/migrate, out of the rows that the converters work by.

`python -m tf_scheduler.convert.page docs/migrate` brings the pages up to date.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from . import beta, operator_job, pod, spark, tfjob, tony_rest, tony_rows
from .mapping import Row

_PLACE = re.compile(r"(<!-- table: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def tables() -> Mapping[str, str]:
    """Name -> a table in Markdown."""
    prefixes = (Row(f"{prefix}*", (), why) for prefix, why in tony_rest.PREFIXES.items())
    jobs = (Row(f"tony.JOB.{row.source}", row.to, row.note) for row in tony_rows.JOB_ROWS)
    return {
        "tfjob": _table(tfjob.ROWS),
        "tfjob-older": _table(tfjob.OLDER_ROWS),
        "replica": _table(pod.ROWS),
        "operator": _table(operator_job.ROWS),
        "tony": _table(tony_rows.ROWS),
        "tony-job": _table(jobs),
        "tony-rest": _table(prefixes),
        "tony-arguments": _table(tony_rest.ARGUMENTS),
        "beta": _table(beta.ROWS),
        "beta-obsolete": _lines(("option", "why it has no effect"), ((f"`{a}`", b) for a, b in beta.obsolete())),
        "spark": _table(spark.ROWS),
    }


def filled(page: str) -> str:
    """The page with each `<!-- table: NAME -->` followed by the table of that name, up to `<!-- end -->`."""
    known = tables()
    return _PLACE.sub(lambda found: f"{found[1]}\n{known[found[2]]}\n\n{found[3]}", page)


def _table(rows: Iterable[Row]) -> str:
    return _lines(("there", "here", "how"), ((_code(row.source), _options(row), _escaped(row.note)) for row in rows))


def _options(row: Row) -> str:
    if row.to:
        return ", ".join(_code(option.format(job="JOB")) for option in row.to)
    return "" if row.take else "left out"


def _code(text: str) -> str:
    return f"`{text}`"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


def _lines(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(_line(row) for row in (head, ("---",) * len(head), *rows))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def _pages(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.glob("*.md")):
        yield path, filled(path.read_text())


if __name__ == "__main__":
    for found, text in _pages(Path(sys.argv[1])):
        if found.read_text() != text:
            found.write_text(text)
            sys.stdout.write(f"wrote {found}\n")
