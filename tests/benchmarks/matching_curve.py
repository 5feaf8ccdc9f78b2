"""Draw matching.svg: CPU time of gang and naive matches by offer count.

    PYTHONPATH=framework:executor:tests python tests/benchmarks/matching_curve.py docs/evidence/matching.svg

All matches run in the same process; each time is the minimum of three rounds (best fit: one). Prints the table of
docs/evidence/performance.md: offers, then seconds and agents of each.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks import test_matching as benchmark
from tf_scheduler.core.placement.matching import Match, match_gang

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
ROUNDS = 3
#: More offers would take minutes.
LARGEST_FOR_BEST_FIT = 10_000

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 610, 20, 340
#: Decades that the axes show: offers, seconds.
OFFERS, SECONDS = (3.0, 5.0), (-2.0, 2.0)

Points = Sequence[tuple[int, float]]


def measured() -> tuple[Points, Points, Points]:
    """(offers, seconds) of the gang match, first fit, and best fit over all offers."""
    ours, naive, best = [], [], []
    tasks = benchmark.gang()
    for size in SIZES:
        offers = benchmark.cluster(size)
        took, result = benchmark.seconds(partial(match_gang, tasks, offers, benchmark.ABOUT), ROUNDS)
        assert isinstance(result, Match)
        naively, fitted = benchmark.seconds(partial(benchmark.naive, tasks, offers), ROUNDS)
        assert fitted is not None
        ours.append((size, took))
        naive.append((size, naively))
        row = [took, len({item.agent.id for item in result.placements}), naively, len(set(fitted.values()))]
        if size <= LARGEST_FOR_BEST_FIT:
            thoroughly, scored = benchmark.seconds(partial(benchmark.naive, tasks, offers, True), 1)
            best.append((size, thoroughly))
            row += [thoroughly, len(set((scored or {}).values()))]
        print(
            f"| {size:,} | " + " | ".join(f"{n:.2f}" if isinstance(n, float) else str(n) for n in row) + " |",
            flush=True,
        )
    return ours, naive, best


def x(offers: float) -> float:
    return LEFT + (math.log10(offers) - OFFERS[0]) / (OFFERS[1] - OFFERS[0]) * (RIGHT - LEFT)


def y(seconds: float) -> float:
    return BOTTOM - (math.log10(seconds) - SECONDS[0]) / (SECONDS[1] - SECONDS[0]) * (BOTTOM - TOP)


def drawing(ours: Points, naive: Points, best: Points) -> Iterator[str]:
    """Return the lines of an SVG document."""
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-family="sans-serif" font-size="13">'
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    for decade in range(int(OFFERS[0]), int(OFFERS[1]) + 1):
        yield from _tick(
            x(10**decade), TOP, x(10**decade), BOTTOM, f"{10**decade:,}", x(10**decade), BOTTOM + 18, "middle"
        )
    for decade in range(int(SECONDS[0]), int(SECONDS[1]) + 1):
        label = f"{10.0**decade:g} s"
        yield from _tick(LEFT, y(10.0**decade), RIGHT, y(10.0**decade), label, LEFT - 8, y(10.0**decade) + 4, "end")
    yield _text((LEFT + RIGHT) / 2, BOTTOM + 42, "middle", "offers (1,000 tasks with constraints)", "#333")
    yield f'<line x1="{LEFT}" y1="{y(1):.1f}" x2="{RIGHT}" y2="{y(1):.1f}" stroke="#999" stroke-dasharray="4 4"/>'
    yield from _curve(ours, "#0a58ca", "gang match")
    yield from _curve(naive, "#b02a37", "first fit")
    yield from _curve(best, "#997404", "best fit, looking at all")
    yield "</svg>"


def _tick(*args: object) -> Iterator[str]:
    x1, y1, x2, y2, label, at_x, at_y, anchor = args
    yield f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#ddd"/>'
    yield _text(at_x, at_y, anchor, label, "#333")


def _curve(points: Points, colour: str, label: str) -> Iterator[str]:
    path = " ".join(f"{x(offers):.1f},{y(took):.1f}" for offers, took in points)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for offers, took in points:
        yield f'<circle cx="{x(offers):.1f}" cy="{y(took):.1f}" r="4" fill="{colour}"/>'
    offers, took = points[0]
    yield _text(x(offers) + 10, y(took) - 10, "start", label, colour)


def _text(at_x: object, at_y: object, anchor: object, text: object, colour: str) -> str:
    return f'<text x="{at_x:.1f}" y="{at_y:.1f}" text-anchor="{anchor}" fill="{colour}">{text}</text>'


if __name__ == "__main__":
    Path(sys.argv[1]).write_text("\n".join(drawing(*measured())) + "\n")
