"""The page of past runs that `open` serves while no service runs."""

import json
import os
import re
import signal
import stat
import subprocess
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import expect

from asgi_client import ask
from dcos_command.client import ServiceClient
from jobs import PATIENCE
from kit.browser import CONTRAST, SMALL
from kit.commands import command_line, processes, request
from runs import T0, a_point, a_run
from tf_scheduler.api.http.auth import TOKEN_HEADER
from tf_scheduler.cli.common.folders import RunFolder
from tf_scheduler.cli.common.past_runs import run_database
from tf_scheduler.cli.local_run.advertisements import advertise
from tf_scheduler.cli.local_run.runs_page import RunsPage, serve_past_runs
from tf_scheduler.history.database import SharedRuns

#: A text that would do something if it were taken for markup.
EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"
FIRST, SECOND, TEAM = (f"mnist-2026013{day}-101500-00000{day}" for day in range(3))


def recorded(name: str, losses, number: int, **others):
    points = tuple(a_point(step, step, loss) for step, loss in enumerate(losses, 1))
    options = {"service": {"name": "mnist", "environment": {"LR": str(number)}}}
    values = {"curves": {"worker-0": points}, "options": options, "submitted": T0 + number, "folder": "", **others}
    return a_run(id=name, **values)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs of this user, one with files, and one of another user that claims them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("DCOS_DIR", str(tmp_path / "no-dcos"))
    monkeypatch.setenv("NO_COLOR", "1")
    for name in ("SSH_CONNECTION", "DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    folder = RunFolder.create("mnist", "00000a")
    kept = folder.checkpoints / "kept-files" / "w__1"
    for path, text in ((folder.logs / "worker-0" / "stdout", EVIL), (kept / "m.keras", "model")):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    names = ("m.keras", "../../../logs/worker-0/stderr", "../../../../../../../secret", "gone")
    files = [{"task": "w", "name": name, "bytes": 5, "why": "", "folder": str(kept)} for name in names]
    folder.result.write_text(json.dumps({"files": {"kept": files, "left": []}}))
    (tmp_path / "secret").write_text("hush-hush")
    (folder.logs / "worker-0" / "stderr").symlink_to(tmp_path / "secret")
    (folder.logs / "worker-1").symlink_to(tmp_path)
    run_database().save(recorded(FIRST, (0.9, 0.5, 0.3), 1, note=EVIL))
    run_database().save(recorded(SECOND, (0.9, 0.6, 0.4), 2, folder=str(folder.path)))
    (tmp_path / "team").mkdir()
    shared = recorded(TEAM, (0.9, 0.8, 0.7), 3, service=EVIL, reason=EVIL, folder=str(folder.path), state="failed")
    SharedRuns(tmp_path / "team").save(shared)
    return tmp_path


@contextmanager
def opened(*words: object, **settings):
    """Start `open`; yield its process, and the parts of the page's address."""
    with processes() as start:
        command = command_line("open", *words)
        process = start(*command, env=dict(os.environ), stderr=subprocess.PIPE, start_new_session=True, **settings)
        line = process.stdout.readline()
        assert line.startswith("page: "), line + process.stderr.read()
        yield process, urlsplit(line.removeprefix("page: ").strip())


def test_open_without_service_serves_runs(home: Path, monkeypatch) -> None:
    """To this user only; a record of another user, and a link, name no files."""
    browser, arguments = home / "browser", home / "arguments"
    browser.write_text(f'#!/bin/sh\necho "$@" > {arguments}.new && mv {arguments}.new {arguments}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(browser))
    with opened("--store", home / "team") as (process, page):
        token, port = page.fragment.removeprefix("token="), page.port
        assert "127.0.0.1" == page.hostname
        assert [401, 401] == [request(port, path).status for path in ("/v1/tf/runs", f"/v1/tf/runs/{FIRST}")]
        listed = request(port, "/v1/tf/runs", token=token).json
        assert ([TEAM, SECOND, FIRST], TEAM) == ([run["id"] for run in listed["runs"]], listed["selected"])

        details = request(port, f"/v1/tf/runs/{SECOND}", token=token).json
        addresses = {file["name"]: f"/{file['address']}" for file in details["files"]}
        assert {"logs/worker-0/stdout", "kept/w__1/m.keras"} == addresses.keys()
        log = request(port, addresses["logs/worker-0/stdout"])
        assert (EVIL, "text/plain; charset=utf-8") == (log.text, log.content_type)
        assert "model" == request(port, addresses["kept/w__1/m.keras"]).text
        report = f"/{details['report']}"
        assert "<title>mnist: succeeded</title>" in request(port, report).text
        report = report.removesuffix("/report")
        names = ("logs/worker-0/stderr", "logs/worker-1/secret", "../../secret", "%2e%2e/history.db", "none")
        assert {404} == {request(port, f"{report}/{name}").status for name in names}
        guessed = report.replace("/run/", "/run/x")
        assert {401} == {request(port, f"{guessed}/{name}").status for name in ("report", "logs/worker-0/stdout")}
        assert [] == request(port, f"/v1/tf/runs/{TEAM}", token=token).json["files"]
        assert EVIL not in request(port, f"/{request(port, f'/v1/tf/runs/{TEAM}', token=token).json['report']}").text

        file = Path(arguments.read_text().strip().removeprefix("file://"))
        assert (0o600, True) == (stat.S_IMODE(file.stat().st_mode), token in file.read_text())
        assert token not in arguments.read_text() + Path(f"/proc/{process.pid}/cmdline").read_text()
        process.send_signal(signal.SIGINT)
        assert 130 == process.wait(PATIENCE)
        assert "past runs" in process.stderr.read()


def test_page_serves_files_with_any_name(home: Path) -> None:
    """The names of files need not be UTF-8, and notes may have incomplete characters."""
    (run,) = (run for run in run_database().runs() if run.id == SECOND)
    result = RunFolder(Path(run.folder)).result
    files = json.loads(result.read_text())["files"]
    files["kept"].append({**files["kept"][0], "name": os.fsdecode(b"r\xe9sultat.csv")})
    (Path(files["kept"][-1]["folder"]) / files["kept"][-1]["name"]).write_text("1,2")
    result.write_text(json.dumps({"files": files}))
    run = replace(run, note="a\ud800b", options={"service": {"command": "\udfff"}})
    page = RunsPage(None, [run], run.id)

    details = ask(page.app(), f"/v1/tf/runs/{SECOND}", headers={TOKEN_HEADER: page.token})

    addresses = {file["name"]: f"/{file['address']}" for file in details.body["files"]}
    file = ask(page.app(), unquote(addresses["kept/w__1/r\\udce9sultat.csv"]))
    assert (200, "1,2", True) == (file.code, file.text, "%5Cudce9sultat.csv" in file.headers["content-disposition"])
    assert "a\\ud800b" in ask(page.app(), f"/{details.body['report']}").text


def test_page_of_runs_ends_when_unused(home: Path) -> None:
    """A forgotten page must not run forever."""
    shown: list[ServiceClient] = []

    assert serve_past_runs("last", None, shown.append, idle=0.1)
    assert [(False, True)] == [
        (client.token == "", request(urlsplit(client.url).port, "/").status == 0) for client in shown
    ]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("none",), 3, "no service is known"),
        (("--print",), 3, "no service is known"),
        (("--url", "http://127.0.0.1:1"), 3, "http://127.0.0.1:1"),
        (("--store", "/nowhere"), 1, "/nowhere: cannot read the runs"),
    ],
)
def test_wrong_words_open_no_page(home: Path, words, code, text) -> None:
    """A script that asks for a service must not wait for Ctrl-C."""
    with processes() as start:
        process = start(*command_line("open", *words), env=dict(os.environ), stderr=subprocess.PIPE)
        _, err = process.communicate(timeout=PATIENCE)

    assert (code, True) == (process.returncode, text in err), err


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_page_compares_runs_of_all_services(home: Path, visit, width, scheme) -> None:
    """On a phone, the first screen has the curve; texts of others are not markup."""
    with opened("--store", home / "team", FIRST) as (_, address):
        page = visit(address.geturl(), viewport={"width": width, "height": 844}, color_scheme=scheme)
        figure = page.get_by_role("img", name=re.compile("Loss over the steps; now: .* 0.3"))
        expect(figure).to_be_in_viewport(ratio=0.5)
        boxes = page.get_by_role("checkbox")
        expect(boxes).to_have_count(3)
        expect(page.get_by_role("checkbox", name=f"Compare {FIRST}")).to_be_checked()
        for name in (SECOND, TEAM):
            page.get_by_role("checkbox", name=f"Compare {name}").press("Space")
        expect(figure.locator("path")).to_have_count(3)
        expect(page.locator(".settings dt").first).to_have_text("service.environment.LR")
        expect(page.get_by_role("link", name="Report")).to_have_count(3)
        expect(page.locator("#compare")).to_contain_text(EVIL)
        if "SCREENSHOTS" in os.environ:
            page.screenshot(path=Path(os.environ["SCREENSHOTS"]) / f"past-runs-{width}.png", full_page=True)
        assert width == page.evaluate("document.documentElement.scrollWidth")
        assert ([], []) == (page.evaluate(CONTRAST), page.evaluate(SMALL))

        with page.expect_popup() as popup:
            page.get_by_role("link", name="Report").first.click()
        expect(popup.value.locator("h1")).to_have_text(EVIL)
        assert "none" != popup.value.locator(".tile").first.evaluate("node => getComputedStyle(node).borderStyle")
        assert 0 == popup.value.locator("img, script").count()


def test_page_of_runs_links_running_services(home: Path, visit) -> None:
    """And names its own end."""
    with advertise("digits") as publish, opened("last") as (process, address):
        publish("http://127.0.0.1:1")
        page = visit(address.geturl())
        link = page.get_by_role("navigation").get_by_role("link", name="digits (running)")
        expect(link).to_have_attribute("href", "http://127.0.0.1:1/")
        process.terminate()
        process.wait(PATIENCE)
        expect(page.get_by_label("All runs")).to_contain_text("dcos-tensorflow open")
