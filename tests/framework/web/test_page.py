"""The page in a real Chromium, with the real API of a simulated service."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from builders import a_job, a_spec, with_fields
from kit.browser import CONTRAST, SMALL
from live_api import LiveApi
from runs import a_point, a_run
from simulation import send
from simulation.mesos import an_agent
from simulation.world import play
from tf_executor.contract.reports import Progress, Usage
from tf_executor.contract.states import TaskState
from tf_executor.contract.strategies import Strategy
from tf_executor.contract.text import format_duration, format_number
from tf_scheduler.api.http.auth import Policy
from tf_scheduler.history.database import SharedRuns
from tf_scheduler.model.events import AgentFailed, ProgressReported, UsageReported
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.plan import Verb
from tf_scheduler.model.spec import AfterFinish, FinishPolicy, JobKind, RestartPolicy
from tf_scheduler.model.state import Configuration, JournalEntry
from tf_scheduler.model.task import Members
from tf_scheduler.service.api import RunArchive

#: A text that would do something if it were taken for markup.
EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"


def entries(*messages, **others):
    return [JournalEntry(number, 1000.0 + number, "Test", text, **others) for number, text in enumerate(messages, 1)]


def train(live, name, losses, **others) -> None:
    """The task reports ten steps at a time."""
    for number, loss in enumerate(losses, 1):
        point = Progress(number, float(number), 10 * number, 100, loss, 320 * number, 5.0, 160.0, **others)
        event = ProgressReported(live.world.id_of(name), point)
        live.backend.observe(event, live.world.step(event))


def chip(page: Page, task: str) -> Locator:
    return page.get_by_role("region", name="Cluster").get_by_role("button", name=task)


def plans(page: Page) -> Locator:
    """The unfolded plans."""
    region = page.get_by_role("region", name="Plans")
    if not region.get_by_role("region").count():
        region.locator("summary").click()
    return region


#: Numbers that axes and counts may have.
NUMBERS = (0, -3, 7, 0.0324, 0.123456, 1e-7, 12.5, 1234.6, 123_456_789, 12_345_678_901)


def test_page_formats_numbers_as_the_contract(live, home, visit) -> None:
    """Only those of axes and counts: all other values come as texts."""
    code = 'async (values) => values.map((await import("/page/words.js")).formatNumber)'

    assert [format_number(value) for value in NUMBERS] == visit(home).evaluate(code, list(NUMBERS))


def test_page_formats_durations_as_the_contract(live, home, visit) -> None:
    """Elapsed time goes on while the scheduler has nothing to report."""
    code = 'async (values) => values.map((await import("/page/words.js")).formatDuration)'
    times = (0, 59, 60, 61, 3600, 3660, 86_400, 90_000, 864_000)

    assert [format_duration(value) for value in times] == visit(home).evaluate(code, list(times))


def test_head_says_what_runs_and_since_when(live, home, visit) -> None:
    """After the end, the elapsed time is that of the job."""
    stored = Configuration("5e0fd8f0", 1, 940.0, "", {}, [])
    trained(live)
    live.world.state = with_fields(live.world.state, configurations={stored.id: stored})
    page = visit(home)
    expect(page.locator("#about")).to_contain_text(
        re.compile("parameter_server · python train.py · started 1970.* elapsed")
    )
    play(live.world, send.status("chief-0", TaskState.FINISHED))
    expect(page.locator("#about")).to_have_text(re.compile(r"· 1 min elapsed$"))


@pytest.mark.parametrize(("word", "tone"), [("STALLED", "wait"), ("RESTARTING", "wait"), ("FAILED", "bad")])
def test_banner_leads_to_output_of_the_task(visit, word, tone) -> None:
    """With the keyboard, from a page on which another task is selected."""
    with LiveApi(a_spec(restart=RestartPolicy(max_failures=int(word != "FAILED")))) as live:
        STATES[word][0](live)
        page = visit(live.url)
        expect(page.locator("#banner")).to_have_class(f"card {tone}")
        page.locator("#task").select_option("ps-0")
        page.get_by_role("button", name="Output of chief-0").press("Enter")
        expect(page.locator("#task")).to_have_value("chief-0")
        expect(page.locator("#task")).to_be_in_viewport()


def test_equal_curves_are_drawn_once(live, home, visit) -> None:
    """Workers that train one model report the same loss; one of them may be ahead."""
    live.deploy()
    train(live, "worker-0", (2.0, 1.5, 1.2))
    train(live, "worker-1", (2.0, 1.5))
    train(live, "chief-0", (2.0, 1.0))
    curve = visit(home).get_by_role("img", name="Loss over the steps; now: worker-0, worker-1 1.2, chief-0 1")
    expect(curve.locator("path")).to_have_count(2)


def test_page_shows_service_from_start_to_end(live, home, visit) -> None:
    """No agents yet, a running task, a failed task, training, the result."""
    live.register()
    page = visit(home)
    expect(page.get_by_role("heading", level=1)).to_have_text("dev/digits")
    expect(page.get_by_role("article", name="Unplaced tasks").get_by_role("button")).to_have_count(4)
    expect(page.get_by_role("region", name="Why pending")).to_contain_text("worker-1")

    play(live.world, send.offers(), send.running())
    expect(page.get_by_role("article", name="Agent agent-0").get_by_role("button")).to_have_count(4)
    expect(chip(page, "worker-1")).to_contain_text("running")
    others = page.get_by_role("group", name="Agents without a task of this service").get_by_role("article")
    expect(others).to_have_count(2)
    expect(others.filter(has_text="agent-2")).to_contain_text(re.compile(r"4 cpus, 8 GB.*offered at 1970-01-01"))
    live.world.step(AgentFailed("agent-2-id"))
    expect(others).to_have_count(1)
    expect(page.get_by_role("region", name="Why pending")).to_be_hidden()
    expect(page).to_have_title("importing dev/digits")
    expect(page.locator("#pill")).to_have_text("IMPORTING")

    train(live, "chief-0", (2.0, 1.0, 0.5))
    expect(page.get_by_role("group", name="At a glance")).to_contain_text("30 of 100")
    expect(page.get_by_role("img", name=re.compile("Loss over the steps; now: chief-0 0.5"))).to_be_visible()
    expect(page.get_by_role("region", name="Training")).to_contain_text("step 30 of 100, 30 %, 5 steps/s")
    expect(page).to_have_title("30 % dev/digits")
    expect(page.locator("#pill")).to_have_text("TRAINING")

    play(live.world, send.status("worker-1", TaskState.FAILED, message="exit code 3"))
    expect(chip(page, "worker-1")).to_contain_text("failed")

    play(live.world, send.status("chief-0", TaskState.FINISHED))
    result = page.get_by_label("Notices")
    expect(page.locator(".tile", has_text="time left")).to_contain_text("–")
    expect(result).to_contain_text("succeeded")
    expect(result).to_contain_text("resources are released")
    expect(page).to_have_title("✓ dev/digits")


def trained(live) -> None:
    live.deploy()
    play(live.world, *send.joined("ps-0", "worker-0", "worker-1", "chief-0"))
    train(live, "chief-0", (1.0,) * 5 + (0.5,), saved_step=40)


def fail(live) -> None:
    """The chief; whether it restarts depends on the policy."""
    trained(live)
    play(live.world, send.status("chief-0", TaskState.FAILED, exit_code=1, message="exit code 1"))


def late_board(live) -> None:
    """TensorBoard's server does not answer yet."""
    live.deploy()
    play(live.world, *send.joined("ps-0", "worker-0", "worker-1", "chief-0"))


#: Word in the pill -> how the service comes there, and what the title of the tab begins with.
STATES = {
    "QUEUED": (lambda live: live.register(), "queued"),
    "FETCHING": (lambda live: [live.register(), play(live.world, send.offers())], "fetching"),
    "IMPORTING": (lambda live: live.deploy(), "importing"),
    "CONNECTING": (late_board, "connecting"),
    "TRAINING": (trained, "60 %"),
    "RESTARTING": (fail, "restarting"),
    "STALLED": (lambda live: [trained(live), play(live.world, send.wait(100))], "stalled"),
    "STOPPING": (lambda live: [trained(live), play(live.world, send.stop())], "stopping"),
    "SUCCEEDED": (lambda live: [trained(live), play(live.world, send.status("chief-0", TaskState.FINISHED))], "✓"),
    "FAILED": (fail, "!"),
    "STOPPED": (lambda live: [trained(live), play(live.world, send.stop())], "stopped"),
}


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("word", STATES)
def test_each_state_has_its_word_and_fits(visit, word, width) -> None:
    """On the desktop and on a phone; the training leads."""
    spec = a_spec(name="mnist", restart=RestartPolicy(max_failures=int(word != "FAILED")))
    if word == "CONNECTING":
        spec = replace(spec, jobs=(*spec.jobs, a_job(JobKind.TENSORBOARD)))
    reach, title = STATES[word]
    with LiveApi(spec) as live:
        live.world.mesos.kills_at_once = word != "STOPPING"
        reach(live)
        page = visit(f"{live.url}/", viewport={"width": width, "height": 800})

        expect(page.locator("#pill")).to_have_text(word)
        expect(page).to_have_title(f"{title} mnist")
        assert width == page.evaluate("document.documentElement.scrollWidth")
        heights = {name: page.locator(f"#{name}-title").bounding_box()["y"] for name in ("training", "tasks", "output")}
        assert sorted(heights.values()) == list(heights.values())
        assert page.locator("#training-title").is_visible()
        assert heights["training"] < 800
        assert all(chart.bounding_box()["y"] < 700 for chart in page.locator("#charts figure").all()[:1])


def test_restarting_job_says_from_where(live, home, visit) -> None:
    """Which failure it is, why, and what is lost."""
    fail(live)
    text = "1 of 3: chief-0 has failed: exit code 1, at step 60 of 100; its last checkpoint is of step 40 or later"
    page = visit(home)
    expect(page.locator("#cause")).to_have_text(text)
    expect(page.locator(".tile", has_text="time left")).to_contain_text("–")


def test_commands_of_plans_phases_and_steps(live, home, visit) -> None:
    """Restart and force complete need a confirmation."""
    live.register()
    page = visit(home)
    tree = plans(page)
    message = page.locator("#message")

    tree.get_by_role("button", name="Pause deploy").click()
    expect(message).to_have_text("Pause deploy: Received cmd: interrupt")
    tree.get_by_role("button", name="Resume deploy").click()
    expect(message).to_have_text("Resume deploy: Received cmd: continue")
    expect(tree.get_by_role("button", name="Pause deploy")).to_be_visible()

    tree.get_by_role("button", name="Commands for phase worker", exact=True).click()
    tree.get_by_role("button", name="Pause deploy worker", exact=True).click()
    expect(tree.get_by_role("button", name="Resume deploy worker", exact=True)).to_be_visible()
    tree.get_by_role("button", name="Resume deploy worker", exact=True).click()
    expect(tree.get_by_role("button", name="Pause deploy worker", exact=True)).to_be_visible()

    tree.get_by_role("button", name="Commands for step worker worker-1").click()
    tree.get_by_role("button", name="Force complete deploy worker worker-1").click()
    question = page.get_by_role("dialog")
    expect(question).to_contain_text("Force complete deploy / worker / worker-1")
    expect(question.get_by_role("button", name="Cancel")).to_be_focused()
    question.get_by_role("button", name="Cancel").click()
    expect(question).to_be_hidden()
    assert not any(control.forced for control in live.world.state.stored.controls.values())
    tree.get_by_role("button", name="Force complete deploy worker worker-1").click()
    question.get_by_role("button", name="Force complete").click()
    expect(message).to_contain_text("Received cmd: forceComplete for Plan: deploy, Phase: worker, Step: worker-1")

    play(live.world, send.offers(), send.running())
    before = live.world.id_of("ps-0")
    tree.get_by_role("button", name="Commands for phase ps", exact=True).click()
    tree.get_by_role("button", name="Restart deploy ps", exact=True).click()
    question.get_by_role("button", name="Restart").click()
    expect(message).to_contain_text("Received cmd: restart for Plan: deploy, Phase: ps, Step: null")
    play(live.world, send.offers(), send.running())
    assert before != live.world.id_of("ps-0")


def test_plans_are_folded_until_one_waits(live, home, visit) -> None:
    """The state of the active plan is always visible; nothing folds the plans again."""
    live.register()
    page = visit(home)
    region = page.get_by_role("region", name="Plans")
    expect(region).to_contain_text("0/4")
    expect(region.get_by_role("button")).to_have_count(0)

    play(live.world, send.command(Verb.INTERRUPT, "deploy"))
    expect(region.get_by_role("button", name="Resume deploy")).to_be_visible()
    play(live.world, send.command(Verb.CONTINUE, "deploy"))
    expect(region.get_by_role("button", name="Pause deploy")).to_be_visible()


def test_plans_can_be_folded(live, home, visit) -> None:
    """The active plan is open at first."""
    live.deploy()
    tree = plans(visit(home))
    update = tree.get_by_role("region", name="Plan update")

    expect(tree.get_by_role("region", name="Plan deploy")).to_contain_text("worker-1")
    expect(update).not_to_contain_text("worker-1")
    update.get_by_role("button", expanded=False).click()
    expect(update).to_contain_text("worker-1")


@pytest.mark.parametrize(("button", "word"), [("Restart task", "Restart"), ("Move task", "Move")])
def test_selected_task_is_restarted(live, home, visit, button, word) -> None:
    """After a confirmation."""
    live.deploy()
    page = visit(home)
    before = live.world.id_of("worker-0")
    train(live, "worker-0", (2.0, 1.0), saved_step=9)
    expect(page.get_by_role("row", name="worker-0")).to_contain_text("20 of 100")

    chip(page, "worker-0").click()
    page.get_by_role("button", name=button).click()
    loss = "worker-0 restarts; 11 steps since its last checkpoint are lost."
    expect(page.get_by_role("dialog")).to_contain_text(loss)
    page.get_by_role("dialog").get_by_role("button", name=word).click()
    expect(page.locator("#message")).to_contain_text(f"{word} worker-0: ")
    play(live.world, send.offers(), send.running())

    assert before != live.world.id_of("worker-0")


def test_restart_of_plan_says_what_is_lost(live, home, visit) -> None:
    """Of the tasks that restart only; without a known checkpoint the step is named."""
    live.deploy()
    page = visit(home)
    train(live, "chief-0", (2.0,), saved_step=9)
    train(live, "worker-1", (2.0, 1.0))
    expect(page.get_by_role("row", name="worker-1")).to_contain_text("20 of 100")
    tree, question = plans(page), page.get_by_role("dialog")

    tree.get_by_role("button", name="Restart deploy", exact=True).click()
    expect(question).to_contain_text("chief-0 restarts; 1 step since its last checkpoint is lost.")
    expect(question).to_contain_text("worker-1 restarts, at step 20; what it has not saved is lost.")
    question.get_by_role("button", name="Cancel").click()
    tree.get_by_role("button", name="Commands for phase worker", exact=True).click()
    tree.get_by_role("button", name="Restart deploy worker", exact=True).click()
    expect(question).to_contain_text("worker-1 restarts")
    expect(question).not_to_contain_text("chief-0")


def test_refused_command_shows_message(live, home, visit) -> None:
    live.register()
    page = visit(home)
    page.route("**/v1/plans/deploy/interrupt", lambda route: route.fulfill(status=409, body="The service has ended"))

    plans(page).get_by_role("button", name="Pause deploy").click()
    expect(page.locator("#message")).to_have_text("Pause deploy: The service has ended")


def test_table_shows_what_tasks_do(live, home, visit) -> None:
    """A task is found by its name, word or agent, and selected."""
    live.deploy()
    train(live, "chief-0", (2.0, 1.0))
    page = visit(home)
    table = page.get_by_role("table", name="Tasks")
    row = lambda name: table.get_by_role("row").filter(has_text=name)  # noqa: E731

    expect(row("chief-0")).to_contain_text(re.compile(r"TRAINING20 of 1000\.61(\.06)? GB0agent-0"))
    expect(row("ps-0")).to_contain_text("IMPORTING–")
    play(live.world, send.status("worker-1", TaskState.FAILED, message="exit code 3"))
    expect(row("worker-1")).to_contain_text("RESTARTING")
    expect(page.locator("#pill")).to_have_text("RESTARTING")
    expect(page.locator("#cause")).to_have_text("worker-1 has failed: exit code 3")
    play(live.world, send.wait(100), send.offers(), send.running())
    expect(row("worker-1").locator(".in-restarts")).to_have_text("1")

    page.get_by_label("Find").fill("import WORKER")
    expect(row("worker")).to_have_count(2)
    expect(row("chief-0")).to_have_count(0)
    page.get_by_label("Find").fill("agent-7")
    expect(page.get_by_role("region", name="Tasks")).to_contain_text("No task matches.")
    page.get_by_label("Find").fill("")
    row("worker-1").get_by_role("button").click()
    expect(row("worker-1").get_by_role("button")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("combobox", name="Task")).to_have_value("worker-1")


def test_used_resources_are_shown_beside_requested_ones(live, home, visit) -> None:
    """Those that the executors report; a task near its limit is marked."""
    live.deploy()
    for name, usage in {
        "chief-0": Usage(310.0, 310.0, 0.31),
        "worker-0": Usage(1080.0, 1080.0),
        "ps-0": Usage(512.0),
    }.items():
        live.world.step(UsageReported(live.world.id_of(name), usage))
    page = visit(home)
    cells = lambda name: page.locator(f"#tasks tr[data-key={name}]").inner_text().split("\t")  # noqa: E731
    expect(page.locator("#tasks tr[data-key=chief-0]")).to_be_visible()

    assert ["0.31 of 0.6", "310 MB of 1 GB"] == cells("chief-0")[3:5]
    assert ["0.6", "1.05 of 1 GB near its limit"] == cells("worker-0")[3:5]
    assert ["0.6", "512 MB of 1 GB at most"] == cells("ps-0")[3:5]


def test_page_of_10000_tasks_stays_small(visit) -> None:
    """Those that need attention come first; the others are found."""
    with LiveApi(a_spec(workers=10_000)) as many:
        many.register()
        page = visit(many.url)
        tasks = page.get_by_role("region", name="Tasks")
        expect(tasks.get_by_role("row")).to_have_count(51)
        expect(tasks).to_contain_text("and 9,952 more tasks: 9,952 queued")
        expect(page.get_by_role("region", name="Why pending")).to_contain_text("and 9,982 more tasks")
        expect(plans(page)).to_contain_text("and 9,950 more steps")
        tasks.get_by_label("Find").fill("worker-9999")
        expect(tasks.get_by_role("row")).to_have_count(2)

        assert 2500 > page.evaluate("document.querySelectorAll(':not(option)').length")


def test_curves_over_time_and_smoothed(live, home, visit) -> None:
    """The unsmoothed curve stays visible."""
    live.deploy()
    train(live, "chief-0", (2.0, 1.0, 2.0, 1.0))
    page = visit(home)
    loss = page.get_by_role("img", name=re.compile("Loss over"))
    expect(loss).to_have_accessible_name("Loss over the steps; now: chief-0 1")
    expect(loss.locator("path")).to_have_count(1)

    page.get_by_label("Curves over").select_option("time")
    expect(loss).to_have_accessible_name("Loss over the time; now: chief-0 1")
    expect(page.locator("#charts figure").first).to_contain_text("1970-01-01 00:00:011970-01-01 00:00:04")
    page.get_by_label("Smoothing").fill("0.5")
    expect(loss.locator("path")).to_have_count(2)
    # 2, 4/3, 12/7, 4/3: the mean of TensorBoard, between 1 (100) and 2 (0).
    expect(loss.locator("path:not(.raw)")).to_have_attribute("d", "M0.00 0.00L33.33 66.67L66.67 28.57L100.00 66.67")


def test_speed_shows_when_workers_join_and_leave(visit) -> None:
    """To see what a worker brings: on the curve, and in its label for screen readers."""
    spec = replace(a_spec(workers=3, chief=1, strategy=Strategy.PARAMETER_SERVER), live=True)
    with LiveApi(spec) as api:
        api.deploy()
        play(api.world, *send.joined("chief-0", "ps-0", "worker-0", "worker-1", "worker-2"))
        chief = api.world.id_of("chief-0")
        for number, count in enumerate((2, 2, 3, 1), 1):
            members = Members(chief, number, {TaskName(f"worker-{index}"): "" for index in range(count)}, 1.0)
            api.world.runner.state = with_fields(api.world.state, members=members)
            point = Progress(number, float(number), 10 * number, 100, 1.0, None, 5.0, metrics={"workers": 7.5})
            event = ProgressReported(chief, point)
            api.backend.observe(event, api.world.step(event))
        page = visit(api.url, viewport={"width": 320, "height": 800})
        speed = page.locator("figure[data-key=steps_per_second]")
        marks = speed.locator("svg.joined")

        expect(speed.get_by_role("img")).to_have_accessible_name(
            "Steps a second over the steps; now: chief-0 5; workers: 2; 3 from step 30; 1 from step 40"
        )
        expect(marks.locator("text")).to_have_text(["3", "1"])
        expect(speed.get_by_role("listitem")).to_have_text(["chief-0 5", "workers 1"])
        assert ["66.", "100"] == [line.get_attribute("x1")[:3] for line in marks.locator("line").all()]
        expect(page.locator("svg.joined")).to_have_count(1)
        metric = page.get_by_role("img", name="workers over the steps")
        expect(metric).to_have_accessible_name(re.compile("chief-0 7.5"))
        assert 320 == page.evaluate("document.documentElement.scrollWidth")
        assert [] == page.evaluate(CONTRAST)

        page.get_by_label("Curves over").select_option("time")
        times = re.compile(r"workers: 2; 3 from 1970-01-01 \S+03; 1 from 1970-01-01 \S+04")
        expect(speed.get_by_role("img")).to_have_accessible_name(times)


def test_reports_at_one_step_are_one_point(live, home, visit) -> None:
    """Metrics of the output come between two steps of event files."""
    live.deploy()
    train(live, "chief-0", (2.0, 1.5))
    event = ProgressReported(live.world.id_of("chief-0"), Progress(3, 3.0, 20, 100, 1.0))
    live.backend.observe(event, live.world.step(event))
    curve = visit(home).get_by_role("img", name=re.compile("Loss over")).locator("path")
    expect(curve).to_have_attribute("d", "M0.00 0.00L100.00 100.00")


def test_options_that_differ_from_defaults_come_first(live, home, visit) -> None:
    """Then what each job gets; texts are no markup."""
    live.deploy()
    options = {"service": {"name": "digits", "environment": [EVIL]}, "worker": {"count": 2}}
    stored = Configuration("5e0fd8f0", 1, 1.0, "", options, [{"option": "worker.count", "old": 1, "new": 2}])
    live.world.state = with_fields(live.world.state, configurations={stored.id: stored})
    page = visit(home)
    page.locator("#options-fold summary").click()
    jobs = ("ps (1)", "worker (2)", "chief (1)")
    titles = ["Options that differ from the defaults", re.compile("Changed by the update of"), *jobs]

    expect(page.locator("#options h3")).to_have_text(titles)
    expect(page.locator("#options dt").first).to_have_text("service.name")
    expect(page.locator("#options")).to_contain_text(EVIL)
    expect(page.locator("#options")).to_contain_text("1 → 2")


FIRST, SECOND, OWN = (f"dev-digits-2026013{day}-101500-00000{day}" for day in range(3))


@pytest.fixture
def with_runs(tmp_path):
    """The service dev/digits with two earlier runs, and files that are not records."""

    def record(name, losses, options, **others):
        points = tuple(
            a_point(step, step, loss, speed=5.0, unit="steps", metrics={"accuracy": 1 - loss})
            for step, loss in enumerate(losses, 1)
        )
        service = {"name": "dev/digits", "command": "python train.py", **options}
        values = {"curves": {"worker-0": points}, "options": {"service": service}, "service": "dev/digits", **others}
        return a_run(id=name, **values)

    shared = SharedRuns(tmp_path)
    shared.save(record(FIRST, (0.9, 0.5, 0.3), {"environment": {"LR": "0.1"}}, note="lr 0.1", submitted=1000.0))
    failed = {"state": "failed", "reason": EVIL, "submitted": 2000.0, "note": f"{EVIL}{'n' * 200}"}
    shared.save(record(SECOND, (0.9, 0.8, float("nan")), {"job_url": "u" * 200}, **failed))
    (tmp_path / "dev-digits-20260130-101500-0000ff.json").write_text("{")
    own = record(OWN, (0.9, 0.7, 0.4), {"environment": {"LR": "0.2"}}, state="running", submitted=3000.0)
    archive = RunArchive("dev/digits", lambda: own, lambda: None, print, str(tmp_path))
    with LiveApi(a_spec(name="dev/digits"), runs=archive) as api:
        api.deploy()
        yield api


def test_earlier_runs_are_listed_and_compared_with_keyboard(with_runs, visit) -> None:
    """Newest first, after this run; the comparison has curves and options."""
    page = visit(f"{with_runs.url}/service/dev/digits/")
    region = page.get_by_role("region", name="Earlier runs")
    rows = region.get_by_role("row")
    expect(rows).to_have_count(0)
    region.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(rows).to_have_count(4)
    expect(rows.nth(1)).to_contain_text("this run")
    expect(rows.nth(2)).to_contain_text("FAILED")
    expect(rows.nth(2)).to_contain_text(EVIL)
    expect(rows.nth(3)).to_contain_text(re.compile("1970-01-01.*SUCCEEDED.*3.*0.3.*loss 0.3, accuracy 0.7.*lr 0.1"))
    expect(region).to_contain_text("1 file in")

    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(region).to_contain_text("Select runs to compare them.")
    for _ in range(2):
        page.keyboard.press("Tab")
    page.keyboard.press("Space")
    label = re.compile("Loss over the steps; now: A: this run 0.4, B: .* 0.3")
    expect(region.get_by_role("img", name=label)).to_be_visible()
    expect(region.locator("figcaption")).to_have_text(["Loss", "accuracy", "Steps a second"])
    expect(region.locator(".settings dt")).to_have_text(["service.environment.LR"])
    expect(region.locator(".settings dd")).to_have_text(["A: 0.2", "B: 0.1"])

    region.get_by_role("checkbox", name=f"Compare {SECOND}").check()
    expect(region.locator(".settings dd")).to_have_text(
        ["A: 0.2", "B: default", "C: 0.1", "A: default", f"B: {'u' * 200}", "C: default"]
    )
    region.get_by_role("checkbox", name=f"Compare {OWN}").uncheck()
    region.get_by_role("checkbox", name=f"Compare {SECOND}").uncheck()
    expect(region.locator("#compare")).to_have_text("Select runs to compare them.")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_earlier_runs_fit_and_have_contrast(with_runs, visit, tmp_path, scheme, width) -> None:
    """On a phone, too; long notes and options are broken."""
    page = visit(
        f"{with_runs.url}/service/dev/digits/",
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        reduced_motion="reduce",
    )
    region = page.get_by_role("region", name="Earlier runs")
    region.locator("summary").click()
    for name in (OWN, FIRST, SECOND):
        region.get_by_role("checkbox", name=f"Compare {name}").check()
    expect(region.locator("figure")).to_have_count(3)
    expect(region.locator(".settings dd")).to_have_count(6)
    if "SCREENSHOTS" in os.environ:
        region.screenshot(path=Path(os.environ["SCREENSHOTS"]) / f"runs-{width}-{scheme}.png")

    assert width == page.evaluate("document.documentElement.scrollWidth")
    assert [] == page.evaluate(CONTRAST)
    assert [] == page.evaluate(SMALL)


def test_service_without_records_says_so(live, home, visit) -> None:
    """Without a sandbox nothing is recorded."""
    live.deploy()
    page = visit(home)
    region = page.get_by_role("region", name="Earlier runs")
    region.locator("summary").click()

    expect(region).to_contain_text("this scheduler does not record its run")


def test_outputs_side_by_side_and_search(live, home, visit) -> None:
    """Of the last megabyte."""
    live.deploy()
    live.sandboxes.files["chief-0"] = {
        "stdout": b"the needle\n" + b"hay\n" * 50_000 + b"end\n",
        "stderr": b"trouble\nNEEDLE, too\n",
    }
    page = visit(home)
    log, errors = page.get_by_label("Output of the task"), page.get_by_label("stderr of the task")
    expect(log).to_contain_text("end")
    expect(errors).to_be_hidden()
    page.get_by_label("File").select_option("both")
    expect(errors).to_have_text("trouble\nNEEDLE, too\n")
    assert log.bounding_box()["y"] == errors.bounding_box()["y"]

    page.get_by_label("Search").fill("needle")
    expect(log).to_have_text("the needle")
    expect(errors).to_have_text("NEEDLE, too")
    expect(page.locator("#log-state")).to_have_text("1 of 50,003 lines match; 200.0 kB in total")
    page.get_by_label("Search").fill("")
    expect(errors).to_contain_text("trouble")
    page.set_viewport_size({"width": 390, "height": 800})
    assert log.bounding_box()["y"] < errors.bounding_box()["y"]


def test_output_of_all_tasks_is_in_one_log(live, home, visit) -> None:
    """Each line begins with its task; incomplete lines wait."""
    live.deploy()
    live.sandboxes.files = {"chief-0": {"stdout": b"one\n"}, "worker-0": {"stdout": b"two\nthr"}}
    page = visit(home)
    log = page.get_by_label("Output of the task")
    expect(log).to_have_text("one\n")
    page.get_by_label("All tasks").check()
    expect(log).to_have_text("worker-0 | two\nchief-0 | one\n")
    expect(page.locator("#log-state")).to_have_text("4 tasks, from the last 8,192 bytes of each")
    live.sandboxes.files["worker-0"]["stdout"] += b"ee\n"
    expect(log).to_have_text("worker-0 | two\nchief-0 | one\nworker-0 | three\n")
    page.get_by_label("All tasks").uncheck()
    expect(log).to_have_text("one\n")


def test_search_finds_old_lines_of_all_tasks_by_time(live, home, visit) -> None:
    """The cause of a failure may be far above the last lines, in any task."""
    live.deploy()
    noise = b"hay\n" * 50_000
    files = {
        "worker-1": {"stdout": b"needle 2\n" + noise, "stdout.times": b"0 1002.50\n9 1005.00\n"},
        "worker-0": {"stdout": noise + "näedle 1\nneedle 3\n".encode(), "stdout.times": b"0 1001.00\n200010 1003.50\n"},
        "chief-0": {"stdout": b"needle 0\n"},
    }
    live.sandboxes.files = files
    page = visit(home)
    log = page.get_by_label("Output of the task")
    page.get_by_label("All tasks").check()
    expect(log).to_contain_text("worker-0 | needle 3")
    page.get_by_label("Search").fill("needle")
    expect(log).to_have_text("chief-0 | needle 0\nworker-1 | needle 2\nworker-0 | needle 3")
    expect(page.locator("#log-state")).to_contain_text("from the last 1,048,576 bytes of each")

    files["worker-1"]["stdout"] += b"needle 5\n"
    files["worker-1"]["stdout.times"] += b"200009 1007.00\n"
    files["worker-0"]["stdout"] += b"needle 4\n"
    files["worker-0"]["stdout.times"] += b"200019 1006.00\n"
    expect(log).to_contain_text("needle 3\nworker-0 | needle 4\nworker-1 | needle 5")


def test_output_of_earlier_launch(live, home, visit) -> None:
    """The simulated agents have one file for all launches, so the request counts."""
    live.deploy()
    live.sandboxes.files["worker-0"] = {"stdout": b"Traceback\n"}
    before = live.world.id_of("worker-0")
    play(live.world, send.status("worker-0", TaskState.FAILED), send.wait(100), send.offers(), send.running())
    page = visit(home)
    expect(chip(page, "worker-0")).to_contain_text("running")
    expect(page.get_by_label("Launch")).to_be_hidden()
    chip(page, "worker-0").click()
    with page.expect_response(re.compile(f"/v1/tasks/worker-0/logs.*launch={before}")) as response:
        page.get_by_label("Launch").select_option(before)
    assert before == response.value.json()["id"]
    expect(page.get_by_label("Output of the task")).to_have_text("Traceback\n")


def test_page_says_what_is_missing_and_why(live, home, visit) -> None:
    """Agents with GPUs, and TensorBoard."""
    live.deploy()
    page = visit(home)

    expect(page.get_by_role("region", name="Cluster")).to_contain_text("Agents with GPUs are not shown: no task asks")
    expect(page.get_by_role("region", name="Training")).to_contain_text("TensorBoard is off. To turn it on, set ")


def test_output_of_selected_task_is_followed(live, home, visit) -> None:
    """Also of another file, of another task, and without following."""
    live.deploy()
    live.sandboxes.files = {
        "chief-0": {"stdout": b"one\n", "stderr": b"trouble\n"},
        "worker-0": {"stdout": b"1/3\r2/3\r3/3\n\x1b[31mred\x1b[0m\n"},
    }
    page = visit(home)
    log = page.get_by_label("Output of the task")
    expect(log).to_have_text("one\n")
    live.sandboxes.files["chief-0"]["stdout"] += "zwölf\n".encode()
    expect(log).to_have_text("one\nzwölf\n")

    page.get_by_label("File").select_option("stderr")
    expect(log).to_have_text("trouble\n")
    page.get_by_label("Follow").uncheck()
    page.get_by_label("File").select_option("stdout")
    expect(log).to_have_text("one\nzwölf\n")
    page.get_by_role("combobox", name="Task").select_option("worker-0")
    expect(log).to_have_text("3/3\nred\n")
    expect(chip(page, "worker-0")).to_have_attribute("aria-pressed", "true")


def test_events_are_live_and_filtered(live, home, visit) -> None:
    """Newest first."""
    live.deploy()
    live.pages.add(*entries("first", "second"))
    page = visit(home)
    events = page.get_by_label("Events, newest first").get_by_role("listitem")
    expect(events).to_have_count(2)
    expect(page.locator("#events-state")).to_have_text("live")
    live.pages.add(JournalEntry(3, 1003.0, "Test", "look at this", "worker-0", warning=True))
    expect(events.first).to_contain_text("warning worker-0 look at this")
    expect(events).to_have_count(3)

    page.get_by_label("Only warnings").check()
    expect(events).to_have_count(1)
    page.get_by_label("Only of the selected task").check()
    expect(events).to_have_text("No events.")
    chip(page, "worker-0").click()
    expect(events).to_contain_text("look at this")


@pytest.mark.parametrize(
    "answer",
    [
        {"status": 503, "json": {"error": {"message": "too many"}}},
        {"content_type": "text/event-stream", "body": ":\n\n"},
    ],
    ids=["streams are refused", "streams are cut"],
)
def test_events_of_reinstalled_service_replace_old_ones(live, home, visit, answer) -> None:
    """Its numbers start again, also if it has as many events already."""
    live.deploy()
    live.pages.add(*entries("first", "second", "third"))
    page = visit(home, lambda page: page.route("**/v1/events?follow=*", lambda route: route.fulfill(**answer)))
    events = page.get_by_label("Events, newest first").get_by_role("listitem")
    expect(events).to_have_count(3)

    live.pages.id, live.pages.entries = "the-second", [*entries("reinstalled")]
    expect(events).to_have_count(1)
    expect(events).to_contain_text("reinstalled")
    live.pages.id, live.pages.entries = "the-third", [*entries("one", "two", "three", "four", "five")]
    expect(events).to_have_count(5)
    expect(events.last).to_contain_text("one")


def test_events_are_polled_without_streams(live, home, visit) -> None:
    """A proxy refuses streams, or the scheduler has too many."""
    live.deploy()
    live.pages.add(*entries("first"))
    too_many = {"error": {"message": "too many"}}

    def refuse(page) -> None:
        page.route("**/v1/events?follow=*", lambda route: route.fulfill(status=503, json=too_many))

    page = visit(home, refuse)
    events = page.get_by_label("Events, newest first").get_by_role("listitem")
    expect(page.locator("#events-state")).to_have_text("polled every 2 s")
    live.pages.add(JournalEntry(2, 1002.0, "Test", "second"))
    expect(events.first).to_contain_text("second")


def test_lost_connection_shows_banner(live, home, visit) -> None:
    """The last data stays, with its time."""
    live.deploy()
    page = visit(home)
    expect(chip(page, "worker-0")).to_be_visible()
    banner = page.get_by_role("alert")
    expect(banner).to_be_hidden()

    page.context.set_offline(True)
    expect(banner).to_contain_text("The scheduler does not answer. The data is of ")
    expect(chip(page, "worker-0")).to_be_visible()
    play(live.world, send.status("worker-0", TaskState.FAILED, message="alone"))
    page.context.set_offline(False)
    page.get_by_role("button", name="Try now").click()
    expect(banner).to_be_hidden()
    expect(chip(page, "worker-0")).to_contain_text("failed")
    live.pages.add(*entries("streams are back, too"))
    expect(page.get_by_label("Events, newest first")).to_contain_text("streams are back")


def test_token_is_requested_and_kept(visit) -> None:
    """While the tab is open; the page reports read-only access."""
    with LiveApi(a_spec(), Policy(read_token="reader", write_token="writer")) as live:
        live.deploy()
        live.pages.add(*entries("for readers"))
        page = visit(live.url)
        form = page.get_by_role("dialog", name="Token required")
        form.get_by_label("Token").fill("guess")
        form.get_by_role("button", name="Continue").click()
        expect(form).to_contain_text("Invalid token.")
        form.get_by_label("Token").fill("reader")
        form.get_by_label("Token").press("Enter")
        expect(chip(page, "worker-0")).to_contain_text("running")
        expect(page.get_by_label("Events, newest first")).to_contain_text("for readers")
        page.reload()
        expect(chip(page, "worker-0")).to_contain_text("running")

        plans(page).get_by_role("button", name="Restart deploy").click()
        page.get_by_role("dialog").get_by_role("button", name="Restart").click()
        expect(page.locator("#message")).to_have_text("Restart deploy: a bearer has read access only")
        # Nor where another page of this origin, in this tab, would find it: TensorBoard's.
        assert "{}" == page.evaluate("JSON.stringify({ ...sessionStorage, ...localStorage })")
        assert "reader" not in json.dumps(page.context.storage_state())


def test_address_with_a_token_lets_the_page_in(visit) -> None:
    """As printed by `local run`. The token leaves the address bar."""
    sent = []
    with LiveApi(a_spec(), Policy(write_token="writer/+=")) as live:
        live.deploy()
        watch = lambda page: page.on("request", lambda request: sent.append(request.url))  # noqa: E731
        page = visit(f"{live.url}/#token=writer%2F%2B%3D", prepare=watch)
        expect(chip(page, "worker-0")).to_contain_text("running")
        assert f"{live.url}/" == page.url
        page.reload()
        expect(chip(page, "worker-0")).to_contain_text("running")
        expect(page.get_by_role("dialog", name="Token required")).to_be_hidden()

        plans(page).get_by_role("button", name="Restart deploy").click()
        page.get_by_role("dialog").get_by_role("button", name="Restart").click()
        expect(page.locator("#message")).to_contain_text("Received cmd: restart")
        assert "{}" == page.evaluate("JSON.stringify({ ...sessionStorage, ...localStorage })")
    assert not [url for url in sent if "writer" in url.partition("#")[0]]


def test_user_texts_are_not_markup(visit) -> None:
    """In events, logs, states, reasons and options."""
    with LiveApi(a_spec(checkpoint_dir=EVIL)) as live:
        live.deploy()
        live.pages.add(*entries(EVIL, task=EVIL, warning=True))
        live.sandboxes.files = {"chief-0": {"stdout": EVIL.encode()}}
        page = visit(live.url)
        expect(page.get_by_label("Output of the task")).to_have_text(EVIL)
        expect(page.get_by_label("Events, newest first")).to_contain_text(EVIL)
        play(live.world, send.status("chief-0", TaskState.FAILED, message=EVIL))
        expect(page.locator("#facts")).to_contain_text(EVIL)
        live.world.runner.state = with_fields(live.world.state, reasons={"chief-0": (EVIL,)}, refused=EVIL)
        expect(page.locator("#cause")).to_have_text(EVIL)

        assert 0 == page.locator("img, script:not([src])").count()


def test_page_names_frozen_tasks(live, home, visit) -> None:
    live.deploy()
    page = visit(home)
    expect(chip(page, "worker-0")).to_be_visible()
    expect(page.get_by_label("Notices")).to_be_hidden()
    play(live.world, send.status("worker-0", TaskState.RUNNING, healthy=False, message=EVIL))
    expect(page.get_by_label("Notices")).to_contain_text(f"worker-0 is frozen: {EVIL}")
    expect(page.get_by_role("button", name="Output of worker-0")).to_be_visible()


def test_page_works_with_keyboard(live, home, visit) -> None:
    """The focus is visible and survives updates; Escape cancels."""
    live.deploy()
    page = visit(home)
    expect(chip(page, "ps-0")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    restart = plans(page).get_by_role("button", name="Restart deploy")
    for _ in range(40):
        if restart.evaluate("node => node === document.activeElement"):
            break
        page.keyboard.press("Tab")
    expect(restart).to_be_focused()
    assert "solid" == restart.evaluate("node => getComputedStyle(node).outlineStyle")
    live.pages.add(*entries("the page is drawn again"))
    expect(page.get_by_label("Events, newest first")).to_contain_text("drawn again")
    expect(restart).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(restart).to_be_focused()


def test_controls_have_accessible_names(live, home, visit) -> None:
    live.deploy()
    page = visit(home)
    expect(chip(page, "ps-0")).to_be_visible()

    nameless = page.evaluate("""() => [...document.querySelectorAll("main :is(button, select, input, a, article)")]
        .filter((node) => !node.textContent.trim() && !node.ariaLabel && !node.labels?.length)
        .map((node) => node.outerHTML)""")
    assert [] == nameless


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280])
def test_page_fits_and_has_contrast(live, home, visit, scheme, width) -> None:
    """Nothing overflows; contrast as WCAG 2 AA requires."""
    more = [an_agent(f"ip-10-0-0-{number}.compute.internal", gpus=8, region="r" * 30) for number in range(60)]
    live.world.mesos.agents.update({agent.id: agent for agent in more})
    live.deploy()
    train(live, "chief-0", (2.0, 1.0))
    large = Progress(3, 3.0, 8_150_000, 1_000_000_000, 1.5e-7, 10**9, 1234.5, 123_456_789.0)
    event = ProgressReported(live.world.id_of("chief-0"), large)
    live.backend.observe(event, live.world.step(event))
    live.pages.add(*entries("w" * 200, warning=True))
    page = visit(home, viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce")
    expect(page.locator("#charts figure")).to_have_count(2)
    expect(page.locator("#events li")).to_have_count(1)
    expect(page.locator("#others article")).to_have_count(50)
    expect(page.locator("#others")).to_contain_text("and 12 more")

    assert width == page.evaluate("document.documentElement.scrollWidth")
    assert [] == page.evaluate(CONTRAST)
    assert [] == page.evaluate(SMALL)


def test_absurd_numbers_fit(live, home, visit) -> None:
    """A task can report any number; large ones have four digits and an exponent."""
    live.deploy()
    for number, step in enumerate((1, 2**62), 1):
        huge = Progress(number, float(number), step, 2**63, 1e308 / number, 10**30, 1e300, 1e308)
        live.backend.observe(event := ProgressReported(live.world.id_of("chief-0"), huge), live.world.step(event))
    page = visit(home, viewport={"width": 320, "height": 800})
    expect(page.locator("#charts figure")).to_have_count(2)
    training = page.get_by_role("region", name="Training")
    expect(training).to_contain_text("step 4.612e+18 of 9.223e+18, 50 %, 1e+300 steps/s")

    assert 320 == page.evaluate("document.documentElement.scrollWidth")
    assert not re.search(r"\d{7}|(,\d{3}){2}", training.inner_text())


def test_metrics_have_figures_and_curves(live, home, visit) -> None:
    """Examples of the whole job count once; values from the output say so."""
    live.deploy()
    for number in (1, 2):
        metrics = {"accuracy": 0.5 + number / 10, "m" * 64: 1.0 * number, "time": 0.25}
        values = {"examples_per_second": 160.0, "of": "job", "source": "output", "metrics": metrics}
        for name in ("chief-0", "worker-0"):
            point = Progress(number, float(number), 10 * number, 100, 0.5, **values)
            event = ProgressReported(live.world.id_of(name), point)
            live.backend.observe(event, live.world.step(event))
    page = visit(home, viewport={"width": 320, "height": 800})

    expect(page.locator("#charts figcaption")).to_have_text(["Loss", "accuracy", "m" * 64, "time"])
    expect(page.get_by_role("img", name="time over")).to_have_accessible_name(re.compile("chief-0 0.25"))
    expect(page.locator(".tile", has_text="accuracy")).to_contain_text("0.7")
    expect(page.locator(".tile", has_text="examples a second")).to_contain_text("160")
    expect(page.get_by_role("region", name="Training")).to_contain_text("step 20 of 100, 20 %, from output")
    assert 320 == page.evaluate("document.documentElement.scrollWidth")


def test_page_of_kept_service(visit) -> None:
    """Without kept tasks, the page does not mention any."""
    with LiveApi(a_spec(finish=FinishPolicy(after_finish=AfterFinish.IDLE))) as idle:
        idle.deploy()
        play(idle.world, send.status("chief-0", TaskState.FINISHED))
        page = visit(f"{idle.url}/")

        result = page.get_by_label("Notices")
        expect(result).to_contain_text("The service has no tasks and stays registered")
        expect(plans(page)).to_contain_text("waits for an operator")
