"""HTML report of a run."""

import re
from html.parser import HTMLParser

from hypothesis import example, given, settings
from hypothesis import strategies as st

from runs import T0, a_launch, a_point, a_run
from tf_scheduler.history.model import RunWarning
from tf_scheduler.report import render_comparison, render_page, ticks, time_ticks

VOID = {"meta"}
EVIL = "</style><script>alert(1)</script><img src=x onerror=alert(1)>\"' &amp;"


class Reader(HTMLParser):
    """Checks that all tags are closed in order; collects names, attributes and text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.names, self.attributes, self.text = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_page_has_result_tasks_curves_and_options():
    seen = Reader(render_page(a_run()))
    text = " ".join(seen.text)

    assert [] == seen.open
    for expected in (
        "mnist",
        "succeeded",
        "worker-0 finished",
        "agent-1",
        "2 launches",
        "agent-2 was lost",
        "Loss",
        "Examples a second",
        "2.20.0",
        '"command": "python train.py"',
        "worker-1 failed",
        "137",
    ):
        assert expected in text
    # One bar for each launch, and one path in each chart.
    bars = [value for name, value in seen.attributes if name == "class" and str(value).startswith("bar ")]
    assert ["bar bad", "bar going", "bar good"] == sorted(bars)
    assert 2 == seen.names.count("path")


def test_each_unit_of_speed_has_its_chart():
    """The tile has the speed of the leader."""
    curves = {
        "worker-0": (a_point(1, 1, speed=640.0),),
        "worker-1": (a_point(2, 1, speed=5.0, unit="steps"),),
    }

    text = "|".join(Reader(render_page(a_run(curves=curves))).text)

    assert text.index("640|examples a second") < text.index("Examples a second") < text.index("Steps a second")


def test_curve_is_not_drawn_over_an_outage():
    """The second launch of worker-1 begins at 5 s; a line of one point is a dot."""
    curves = {"worker-1": tuple(a_point(at, at, 1.0) for at in (3, 4, 8, 9)), "worker-0": (a_point(3, 1, 1.0),)}

    paths = re.findall(r'<path d="([^"]*)"', render_page(a_run(curves=curves)))

    assert [1, 2] == sorted({path.count("M") for path in paths})
    assert all(path.count("h0.01") == path.count("M") for path in paths)


def test_speed_has_marks_where_workers_join_and_leave():
    """Seen from the points of the leader: worker-1 is lost at 4 s, returns at 6 s."""
    marks = re.findall(r'<span class="joined" style="([^"]*)">([^<]*)', render_page(a_run()))

    assert [("left:50.000%;width:50.000%", "1 worker"), ("left:100.000%;width:0.000%", "2 workers")] == marks


def test_each_metric_has_a_tile_and_a_chart():
    """The name is a text of the program."""
    points = tuple(a_point(at, at, metrics={"accuracy": at / 10, EVIL: 1.0}) for at in (1, 9))

    text = Reader(render_page(a_run(curves={"worker-0": points}))).text

    assert "0.9" == text[text.index("last accuracy") - 1]
    assert {"accuracy", EVIL, f"last {EVIL}"} <= set(text)


def test_comparison_draws_the_curves_of_both_runs():
    """Each from its own start, in one chart; a metric of one run has a chart, too."""
    first = tuple(a_point(at, at, 1.0 / at, metrics={"accuracy": at / 10}) for at in (1, 5, 10))
    second = tuple(a_point(7_000 + at, at, 2.0 / at) for at in (1, 5, 10))
    old = a_run(id="old-1", curves={"worker-0": first, "worker-1": first}, note=EVIL)
    new = a_run(id="new-2", submitted=T0 + 7_000, curves={"chief-0": second})

    seen = Reader(render_comparison(old, new))

    assert [] == seen.open
    assert 3 == seen.names.count("path")
    assert {"old-1 and new-2", "Loss", "accuracy", "last_loss", "0.1", "0.2"} <= set(seen.text)
    assert "10 s" in seen.text
    loss = [value for name, value in seen.attributes if name == "d"][:2]
    assert ["60.0", "60.0"] == [path[1:].split(" ")[0] for path in loss]


def test_page_loads_nothing_and_has_no_scripts():
    """Its content security policy forbids both."""
    text = render_page(a_run())
    seen = Reader(text)

    assert not {"script", "link", "img", "iframe", "object", "a"} & set(seen.names)
    assert not [name for name, _ in seen.attributes if name in ("src", "href", "action") or name.startswith("on")]
    assert "url(" not in text
    assert "default-src 'none'" in text


EVERYWHERE = a_run(
    id=EVIL,
    service=EVIL,
    state=EVIL,
    reason=EVIL,
    folder=EVIL,
    options={EVIL: EVIL},
    environment={EVIL: EVIL},
    agents={EVIL: EVIL},
    launches=(a_launch(EVIL, state=EVIL, agent=EVIL, address=EVIL, message=EVIL, replaced=EVIL),),
    curves={EVIL: (a_point(0, 1, 1.0, speed=1.0, metrics={EVIL: 1.0}),)},
    warnings=(RunWarning(T0, EVIL),),
)


def test_page_escapes_all_text():
    seen = Reader(render_page(EVERYWHERE))

    assert not {"script", "img"} & set(seen.names)
    assert not [name for name, _ in seen.attributes if name.startswith("on")]
    assert sum(text.count("alert(1)") for text in seen.text) > 10


NUMBERS = st.none() | st.floats(allow_nan=True) | st.integers(-5, 5).map(float)
POINTS = st.lists(st.builds(a_point, st.floats(0, 1e6), st.none() | st.integers(0), NUMBERS, speed=NUMBERS), max_size=8)


def test_absurd_numbers_stay_short():
    """A task can report any number; one of 309 digits would hide the rest of the page."""
    curves = {"worker-0": (a_point(3, 1, 2.0, speed=1.0), a_point(4, 2**63 - 1, 1e308, speed=1e308))}
    seen = Reader(render_page(a_run(curves=curves)))
    numbers = {word for text in seen.text for word in text.split() if word[:1].isdigit() and "e+" in word}

    assert {"9.223e+18", "1e+308"} <= numbers
    assert 15 >= max(map(len, re.findall(r"[\d,.]+", " ".join(seen.text))))


#: Their differences, logarithms and sums overflow, or vanish.
EXTREME = [a_point(1, 1, loss, speed=speed) for loss, speed in [(5e-324, 5e-324), (-1.7e308, 1.7e308), (1e308, -1.0)]]


@settings(max_examples=40, deadline=None)
@example(EXTREME[:1], 0, 0, None)
@example(EXTREME[:2], 0, 0, None)
@example(EXTREME, 0, 0, None)
@example([a_point(1, 1, 1e-199, speed=0.0), a_point(2, 2, 1e200, speed=1e-210)], 0, 0, None)
@given(POINTS, st.floats(0, 1e6), st.floats(-10, 1e6), st.none() | st.floats(-10, 1e6))
def test_any_recording_can_be_drawn(points, seconds, launched, ended):
    """Also infinite losses, clocks that differ, and runs without duration."""
    run = a_run(
        seconds=seconds,
        curves={"worker-0": tuple(points)},
        launches=(a_launch(launched=launched, running=None, ended=ended),),
    )

    text = render_page(run)

    assert [] == Reader(text).open
    assert not re.search(r"[\d:]-?(nan|inf)|(nan|inf)%", text)


def test_run_without_launches_has_a_page():
    """Refused before anything was launched."""
    text = render_page(
        a_run(state="refused", launches=(), curves={}, warnings=(), agents={}, options={}, environment={})
    )

    assert "No task was launched." in text
    assert "No task reported progress" in text


def test_axes_have_round_numbers():
    assert [0.0, 20.0, 40.0, 60.0, 80.0] == ticks(0, 97)
    assert [0.0, 30.0, 60.0, 90.0] == time_ticks(97)
