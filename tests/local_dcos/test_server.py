"""The endpoints over real HTTP, for requests that the dcos command does not send."""

import base64
import http.client
import json
import os
import stat
import sys
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from dcos.folder import Folder, private
from dcos.record import Record
from dcos.server import choose_port, serving
from dcos_command import execute
from dcos_command.client import ServiceClient
from dcos_command.main import main
from kit.waiting import wait_until
from tf_scheduler.package.sources import content_type

PATIENCE = 60
SERVE = f"echo started; exec {sys.executable} -m http.server --bind 127.0.0.1 $PORT0"
#: A service that answers nobody.
SILENT = "exec sleep 1000"
#: Tells one event, and the other when it is asked to.
STREAM = """
import http.server, sys, threading
go = threading.Event()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        if self.path == "/go":
            go.set()
        self.send_header("Content-Type", "text/event-stream" if self.path == "/events" else "text/plain")
        self.end_headers()
        if self.path == "/events":
            self.wfile.write(b"data: one\\n\\n")
            go.wait()
            self.wfile.write(b"data: two\\n")
        else:
            self.wfile.write(self.path.encode())
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
TEMPLATE = """{
  "id": "{{service.name}}", "cmd": "{{service.command}}", "env": {"A": "{{service.a}}"}, "backoffSeconds": 0.01,
  "portDefinitions": [{"port": 0, "name": "api"}],
  "labels": {"DCOS_SERVICE_NAME": "{{service.name}}", "DCOS_SERVICE_PORT_INDEX": "0"}
}"""
CONFIG = {
    "properties": {
        "service": {
            "properties": {
                "name": {"type": "string", "default": "small"},
                "command": {"type": "string", "default": SERVE},
                "a": {"type": "string", "default": "1"},
            }
        }
    }
}


def a_package(version="1.0", release=0, **extra):
    return {
        "packagingVersion": "4.0",
        "name": "small",
        "version": version,
        "releaseVersion": release,
        "maintainer": "x",
        "description": "A Small package",
        "tags": ["tiny"],
        "config": CONFIG,
        "resource": {"images": {"icon-small": "https://example.com/x.png"}},
        "marathon": {"v2AppMustacheTemplate": base64.b64encode(TEMPLATE.encode()).decode()},
        **extra,
    }


@pytest.fixture
def dcos(tmp_path: Path):
    """What serves; no Mesos is behind it."""
    cluster = SimpleNamespace(directory=tmp_path, master=SimpleNamespace(address="127.0.0.1:9"))
    folder = Folder(tmp_path)
    folder.universe.mkdir(parents=True)
    packages = [a_package(), a_package("1.1", 1, upgradesFrom=["1.0"])]
    (folder.universe / "universe-v4.json").write_text(json.dumps({"packages": packages}))
    (folder.universe / "file.txt").write_text("served")
    with serving(cluster, choose_port(folder)) as record:
        yield record


def ask(dcos, method, path, body=None, **headers):
    connection = http.client.HTTPConnection(urlsplit(dcos.url).netloc, timeout=PATIENCE)
    given = {name.replace("_", "-"): text for name, text in headers.items()}
    kind = {"content-type": "application/json"} if path.startswith("/service/marathon") and body is not None else {}
    try:
        connection.request(method, path, body, {**kind, **given})
        answer = connection.getresponse()
        return SimpleNamespace(code=answer.status, kind=answer.headers["content-type"], text=answer.read().decode())
    finally:
        connection.close()


def cosmos(dcos, name, version="v1", /, **body):
    """Status and document of `/package/NAME`, or of `/cosmos/service/NAME`."""
    path = f"/cosmos/{name}" if name.startswith("service/") else f"/package/{name}"
    kind = name.replace("/", ".") if name.startswith("service/") else f"package.{name.replace('/', '.')}"
    answer = ask(
        dcos,
        "POST",
        path,
        json.dumps(body),
        content_type=f"application/vnd.dcos.{kind}-request+json;charset=utf-8;version=v1",
        accept=f"application/vnd.dcos.{kind}-response+json;charset=utf-8;version={version}",
    )
    return answer.code, json.loads(answer.text)


def install(dcos, **service):
    code, found = cosmos(dcos, "install", "v2", packageName="small", packageVersion="1.0", options={"service": service})
    assert 200 == code, found
    return found


def app(dcos, name):
    return json.loads(ask(dcos, "GET", f"/service/marathon/v2/apps/{name}").text)["app"]


def test_newest_version_is_preferred(dcos) -> None:
    """Versions are listed with their release numbers, as texts."""
    assert "1.1" == cosmos(dcos, "describe", "v3", packageName="small")[1]["package"]["version"]
    assert {"results": {"1.0": "0", "1.1": "1"}} == cosmos(
        dcos, "list-versions", packageName="small", includePackageVersions=True
    )[1]
    (found,) = cosmos(dcos, "search", query="*SMALL*pack*")[1]["packages"]
    assert ("1.1", {"1.0": 0, "1.1": 1}) == (found["currentVersion"], found["versions"])


def test_describe_has_an_older_form(dcos) -> None:
    """Without lists of upgrades; a package with such lists cannot be described so."""
    code, old = cosmos(dcos, "describe", "v2", packageName="small", packageVersion="1.0")

    assert (200, "3.0", "small") == (code, old["packagingVersion"], old["name"])
    assert "ConversionFromPackageToV2DescribeResponse" == cosmos(dcos, "describe", "v2", packageName="small")[1]["type"]


def test_install_has_an_older_form(dcos) -> None:
    """0.4.17 repeats a refused installation with it, and shows that refusal."""
    code, refused = cosmos(dcos, "install", "v1", packageName="small", options={"service": {"name": 1}})

    assert (400, "JsonSchemaMismatch") == (code, refused["type"])
    named = {"packageName": "small", "packageVersion": "1.1"}
    assert (200, {**named, "appId": "/small"}) == cosmos(dcos, "install", "v1", packageName="small")


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ({}, "not_present"),
        ({"content_type": "application/json"}, "not_valid"),
        ({"content_type": "application/vnd.dcos.package.list-request+json;charset=utf-8;version=v1"}, "not_present"),
        (
            {
                "content_type": "application/vnd.dcos.package.list-request+json;charset=utf-8;version=v1",
                "accept": "application/json",
            },
            "not_valid",
        ),
    ],
)
def test_cosmos_requires_media_types(dcos, headers, kind) -> None:
    answer = ask(dcos, "POST", "/package/list", "{}", **headers)

    assert (400, kind) == (answer.code, json.loads(answer.text)["type"])
    assert "application/vnd.dcos.package.error+json;charset=utf-8;version=v1" == answer.kind


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"origin": "http://evil.example", "sec_fetch_site": "cross-site", "content_type": "text/plain"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"host": "evil.example"}, 403),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": ""}, 415),
        ({}, 201),
    ],
)
def test_page_of_another_site_starts_nothing(dcos, headers, code) -> None:
    """An app would run as the user of the server, often root."""
    answer = ask(dcos, "POST", "/service/marathon/v2/apps", '{"id": "/x", "cmd": "exec sleep 1000"}', **headers)

    assert code == answer.code
    assert (code == 201) == (200 == ask(dcos, "GET", "/service/marathon/v2/apps//x").code)
    assert 403 == ask(dcos, "GET", "/service/marathon/v2/apps", host="evil.example").code


@pytest.mark.parametrize(
    ("name", "body", "kind"),
    [
        ("describe", {}, "json_error"),
        ("describe", {"packageName": "none"}, "PackageNotFound"),
        ("list-versions", {"packageName": "none"}, "PackageNotFound"),
        ("describe", {"packageName": "small", "packageVersion": "9"}, "VersionNotFound"),
        ("render", {"packageName": "small", "options": {"service": {"a": 1}}}, "JsonSchemaMismatch"),
        ("uninstall", {"packageName": "small"}, "PackageNotInstalled"),
        ("uninstall", {"packageName": "small", "appId": "/x"}, "UninstallNonExistentAppForPackage"),
        ("repository/add", {"name": "x", "uri": "http://127.0.0.1:9/", "index": "one"}, "json_error"),
        ("repository/delete", {}, "RepoNameOrUriMissing"),
        ("service/describe", {"appId": "none"}, "MarathonAppNotFound"),
        ("service/update", {"appId": "none", "replace": False}, "MarathonAppNotFound"),
        ("install", {"packageName": "small", "options": {"service": {"name": "UPPER"}}}, "MarathonBadResponse"),
    ],
)
def test_refusals_have_cosmos_type(dcos, name, body, kind) -> None:
    version = {"describe": "v3", "install": "v2"}.get(name, "v1")

    code, found = cosmos(dcos, name, version, **body)

    assert (400, kind) == (code, found["type"])
    assert found["message"]


def test_invalid_json_is_a_json_error(dcos) -> None:
    kind = "application/vnd.dcos.package.list-{}+json;charset=utf-8;version=v1"
    headers = {"content_type": kind.format("request"), "accept": kind.format("response")}

    for body in ("{", "[]", "[" * 60_000, '{"packageName": "\\ud800"}'):
        assert "json_error" == json.loads(ask(dcos, "POST", "/package/list", body, **headers).text)["type"]


def test_update_merges_or_replaces_options(dcos) -> None:
    """Id and version stay, as outside of Enterprise."""
    install(dcos, name="one", a="2")
    code, shown = cosmos(dcos, "service/describe", appId="/one")
    assert (200, {"service": {"name": "one", "a": "2"}}) == (code, shown["userProvidedOptions"])
    assert SERVE == shown["resolvedOptions"]["service"]["command"]

    code, found = cosmos(dcos, "service/update", appId="one", replace=False, options={"service": {"a": "3"}})

    assert (200, "3", "one") == (
        code,
        found["resolvedOptions"]["service"]["a"],
        found["resolvedOptions"]["service"]["name"],
    )
    wait_until(lambda: app(dcos, "one")["env"]["A"] == "3")
    replaced = cosmos(dcos, "service/update", appId="one", replace=True, options={"service": {"a": "4"}})
    assert (400, "AppIdChanged") == (replaced[0], replaced[1]["type"])
    newer = cosmos(dcos, "service/update", appId="one", replace=False, packageVersion="1.1")
    assert "VersionUpgradeNotSupportedInOpen" == newer[1]["type"]


def test_sub_command_describes_and_updates_a_service(dcos, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(dcos, name="dev/one", command=SILENT)
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text('{"service": {"a": "7"}}')
    bad.write_text('{"service": {"a": 7}}')

    def command(*arguments):
        code = main(["tensorflow", "--name=dev/one", *arguments], {"DCOS_URL": dcos.url, "DCOS_DIR": "/nowhere"})
        return code, capsys.readouterr()

    assert "1" == json.loads(command("describe")[1].out)["service"]["a"]
    code, result = command("update", "start", f"--options={bad}")
    assert 1 == code
    assert "service.a: " in result.err
    code, result = command("update", "start", f"--options={good}", "--yes")
    assert (0, "The update has started. Follow it with: dcos tensorflow update status\n") == (code, result.out)
    assert "7" == json.loads(command("describe")[1].out)["service"]["a"]
    assert "1.0" == json.loads(command("update", "package-versions")[1].out)["current"]
    assert 2 == command("update", "start")[0]
    assert 1 == command("update", "start", f"--options={tmp_path}/none")[0]
    assert 1 == command("uninstall", "--yes")[0]  # another package


def test_concurrent_updates_are_both_kept(dcos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one is sent after this one has read the options."""
    install(dcos, name="dev/one", command=SILENT)
    environment = {"DCOS_URL": dcos.url, "DCOS_DIR": "/nowhere"}
    mine, other = tmp_path / "mine.json", tmp_path / "other.json"
    mine.write_text('{"service": {"a": "7"}}')
    other.write_text(json.dumps({"service": {"command": f"{SILENT}1"}}))
    start = ["tensorflow", "--name=dev/one", "update", "start"]
    codes = []

    submit = ServiceClient.cosmos

    def submitted(service, name, *rest):
        if name == "service.update":
            monkeypatch.undo()
            codes.append(main([*start, f"--options={other}", "--yes"], environment))
        return submit(service, name, *rest)

    monkeypatch.setattr(ServiceClient, "cosmos", submitted)
    codes.append(main([*start, f"--options={mine}", "--yes"], environment))

    now = cosmos(dcos, "service/describe", appId="/dev/one")[1]["userProvidedOptions"]["service"]
    assert ([0, 0], "7") == (codes, now["a"])
    assert f"{SILENT}1" == now["command"]


def test_update_during_confirmation_is_not_replaced(
    dcos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(dcos, name="dev/one", command=SILENT)
    environment = {"DCOS_URL": dcos.url, "DCOS_DIR": "/nowhere"}
    mine, other = tmp_path / "mine.json", tmp_path / "other.json"
    mine.write_text('{"service": {"name": "dev/one", "a": "7"}}')
    other.write_text('{"service": {"a": "8"}}')
    start = ["tensorflow", "--name=dev/one", "update", "start"]
    codes = []
    yes = lambda *_: codes.append(main([*start, f"--options={other}", "--yes"], environment))  # noqa: E731
    monkeypatch.setattr(execute, "confirm", yes)

    codes.append(main([*start, "--replace", f"--options={mine}"], environment))

    assert [0, 1] == codes
    assert "another update meanwhile changed service.a; this command changed nothing." in capsys.readouterr().err
    now = cosmos(dcos, "service/describe", appId="/dev/one")[1]["userProvidedOptions"]["service"]
    assert "8" == now["a"]
    monkeypatch.undo()
    assert 0 == main([*start, "--replace", f"--options={mine}", "--yes"], environment)
    assert "Options that change: service.a, service.command." in capsys.readouterr().err


def test_update_during_uninstall_is_refused(dcos, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Otherwise the scheduler would deploy again."""
    install(dcos, name="dev/one", command=SILENT)
    labels = {**app(dcos, "dev/one")["labels"], "DCOS_COMMONS_UNINSTALL": "true"}
    assert 200 == ask(dcos, "PUT", "/service/marathon/v2/apps/dev/one", json.dumps({"labels": labels})).code
    assert 200 == cosmos(dcos, "uninstall", packageName="small")[0]
    before = app(dcos, "dev/one")
    assert "true" == before["env"]["SDK_UNINSTALL"]

    code, found = cosmos(dcos, "service/update", appId="dev/one", replace=False, options={"service": {"a": "3"}})

    assert (409, True) == (code, "the service 'dev/one' is being uninstalled" in found["message"])
    options = tmp_path / "options.json"
    options.write_text('{"service": {"a": "3"}}')
    update = ["tensorflow", "--name=dev/one", "update", "start", f"--options={options}", "--yes"]
    assert 1 == main(update, {"DCOS_URL": dcos.url, "DCOS_DIR": "/nowhere"})
    assert "is being uninstalled" in capsys.readouterr().err
    assert (before["env"], before["versionInfo"]) == (app(dcos, "dev/one")["env"], app(dcos, "dev/one")["versionInfo"])


def test_app_without_package_is_not_listed(dcos) -> None:
    """`dcos marathon app add` creates such apps."""
    answer = ask(dcos, "POST", "/service/marathon/v2/apps", json.dumps({"id": "plain", "cmd": "exec sleep 1000"}))

    assert (201, "/plain") == (answer.code, json.loads(answer.text)["id"])
    assert {"packages": []} == cosmos(dcos, "list")[1]
    assert "OptionsNotStored" == cosmos(dcos, "service/describe", appId="plain")[1]["type"]


def test_uninstall_of_several_services_needs_all(dcos) -> None:
    """An app without the SDK's uninstall label is removed immediately."""
    install(dcos, name="one")
    install(dcos, name="two")

    code, found = cosmos(dcos, "uninstall", packageName="small")

    assert (400, "AmbiguousAppId", ["/one", "/two"]) == (code, found["type"], found["data"]["appIds"])
    results = cosmos(dcos, "uninstall", packageName="small", all=True)[1]["results"]
    assert [("/one", "1.0"), ("/two", "1.0")] == [(result["appId"], result["packageVersion"]) for result in results]
    assert {"packages": []} == cosmos(dcos, "list")[1]


def test_admin_router_prefers_the_longest_name(dcos) -> None:
    """A stopped service is 503, an unknown one 404."""
    install(dcos, name="dev")
    install(dcos, name="dev/one")
    install(dcos, name="ended", command="exit 3")

    wait_until(lambda: ask(dcos, "GET", "/service/dev/one/").code == 200)
    assert "stdout" in ask(dcos, "GET", "/service/dev/one/").text
    wait_until(lambda: ask(dcos, "GET", "/service/dev/stdout").text == "started\n")
    assert 404 == ask(dcos, "GET", "/service/none/").code
    wait_until(lambda: ask(dcos, "GET", "/service/ended/").code in (502, 503))


def test_event_stream_is_not_buffered(dcos, tmp_path: Path) -> None:
    program = tmp_path / "service.py"
    program.write_text(STREAM)
    install(dcos, name="stream", command=f"exec {sys.executable} {program} $PORT0")
    wait_until(lambda: ask(dcos, "GET", "/service/stream/whole").code == 200)
    for path in ("/v1/tasks/%00?a=%20", "/v1/pod/a%20b", "/%E6%97%A5"):  # as it was asked
        assert (200, path) == vars_of(ask(dcos, "GET", f"/service/stream{path}"))
    connection = http.client.HTTPConnection(urlsplit(dcos.url).netloc, timeout=PATIENCE)
    try:
        connection.request("GET", "/service/stream/events")
        answer = connection.getresponse()

        assert "text/event-stream" in answer.headers["content-type"]
        assert b"data: one\n" == answer.readline()
        ask(dcos, "GET", "/service/stream/go")
        assert b"\ndata: two\n" == answer.read()
    finally:
        connection.close()


def test_task_output_is_read_from_both_ends(dcos) -> None:
    """Only files of the sandbox are read."""
    install(dcos, name="lines", command="seq 100; exec sleep 1000")
    task = wait_until(lambda: app(dcos, "lines")["tasks"])[0]["id"]
    path = f"/system/v1/logs/v2/task/{task}/file"
    wait_until(lambda: ask(dcos, "GET", f"{path}/stdout").text.endswith("100\n"))

    assert "99\n100\n" == ask(dcos, "GET", f"{path}/stdout?cursor=END&skip=-2").text
    assert (204, "") == vars_of(ask(dcos, "GET", f"{path}/stdout?cursor=END"))
    assert ask(dcos, "GET", f"{path}/stdout?cursor=2").text.startswith("2\n3\n")
    assert 404 == ask(dcos, "GET", f"{path}/none").code
    assert 404 == ask(dcos, "GET", f"{path}/%00").code
    assert 404 == ask(dcos, "GET", "/universe/%00").code
    assert 400 == ask(dcos, "GET", f"{path}/stdout?skip=x").code
    assert 404 == ask(dcos, "GET", f"{path}/..%2F..%2Fapps.json").code
    assert 404 == ask(dcos, "GET", "/system/v1/logs/v2/task/none/file/stdout").code


def vars_of(answer):
    return answer.code, answer.text


def test_task_output_can_be_followed(dcos, tmp_path: Path) -> None:
    install(dcos, name="follow", command="echo one; until [ -e go ]; do sleep 0.01; done; echo two; exec sleep 1000")
    shown = wait_until(lambda: app(dcos, "follow")["tasks"])[0]
    wait_until(lambda: ask(dcos, "GET", f"/system/v1/logs/v2/task/{shown['id']}/file/stdout").text == "one\n")
    connection = http.client.HTTPConnection(urlsplit(dcos.url).netloc, timeout=PATIENCE)
    try:
        path = f"/system/v1/logs/v2/task/{shown['id']}/file/stdout?cursor=END&skip=-10"
        connection.request("GET", path, headers={"Accept": "text/event-stream"})
        stream = connection.getresponse()
        assert b"data: one\n" == stream.readline()
        ask(dcos, "GET", "/metadata")  # others are answered meanwhile
        (Folder(tmp_path).marathon / "tasks" / shown["id"] / "go").touch()
        assert b"\n" == stream.readline()
        assert b"data: two\n" == stream.readline()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "apps/none", None, 404),
        ("DELETE", "apps/none", None, 404),
        ("PUT", "apps/none", "{}", 404),
        ("POST", "apps/none/restart", None, 404),
        ("POST", "apps", "{", 400),
        ("POST", "apps", "[]", 400),
        ("POST", "apps", "[" * 60_000, 400),
        ("GET", "apps/%00", None, 404),
        ("POST", "apps", '{"id": "x"}', 422),
        ("PATCH", "apps", "{}", 405),
        ("GET", "none", None, 501),
        ("DELETE", "deployments/x", None, 501),
        ("GET", "apps/none/versions", None, 404),
        ("DELETE", "apps/none/tasks", None, 404),
        ("GET", "groups/none", None, 404),
        ("GET", "groups", None, 200),
        ("GET", "plugins", None, 200),
        ("POST", "tasks/delete", '{"ids": ["none"]}', 200),
        ("GET", "info", None, 200),
        ("GET", "queue", None, 200),
        ("GET", "deployments", None, 200),
        ("GET", "tasks", None, 200),
    ],
)
def test_marathon_statuses(dcos, method, path, body, code) -> None:
    answer = ask(dcos, method, f"/service/marathon/v2/{path}", body)

    assert code == answer.code
    assert code == 200 or json.loads(answer.text)["message"]


def test_files_are_private(tmp_path: Path) -> None:
    """Options may hold passwords. Independent of the umask."""
    cluster = SimpleNamespace(directory=tmp_path, master=SimpleNamespace(address="127.0.0.1:9"))
    folder, before = Folder(tmp_path), os.umask(0)
    try:
        (folder.path / "checkpoints").mkdir(parents=True)  # `local install` made it, before
        with private(folder):
            folder.universe.mkdir()
            with serving(cluster, choose_port(folder)) as dcos:
                definition = {"id": "plain", "cmd": "touch made; exec sleep 1000", "env": {"PASSWORD": "x"}}
                ask(dcos, "POST", "/service/marathon/v2/apps", json.dumps(definition))
                wait_until(lambda: list(folder.marathon.glob("tasks/*/made")))
                modes = {path: stat.S_IMODE(path.stat().st_mode) for path in folder.path.rglob("*")}
        found = [path for path in modes if path.is_file()]
    finally:
        os.umask(before)

    assert {"apps.json", "stderr", "made"} < {path.name for path in found}
    assert [] == [path for path in found if modes[path] & 0o077]
    passages = (folder.path, folder.marathon, folder.marathon / "tasks")
    assert [0o711] * 3 == [stat.S_IMODE(path.stat().st_mode) for path in passages]
    assert {0o700} == {modes[path] for path in folder.marathon.glob("tasks/*")}


def test_put_changes_and_restart_keeps_the_app(dcos) -> None:
    ask(dcos, "POST", "/service/marathon/v2/apps", json.dumps({"id": "plain", "cmd": "exec sleep 1000", "cpus": 0.5}))
    first = wait_until(lambda: app(dcos, "plain")["tasks"])[0]["id"]

    answer = ask(dcos, "POST", "/service/marathon/v2/apps/plain/restart")

    assert 200 == answer.code
    second = wait_until(lambda: [task["id"] for task in app(dcos, "plain")["tasks"] if task["id"] != first])
    assert 200 == ask(dcos, "PUT", "/service/marathon/v2/apps/plain", '{"cpus": 0.25}').code
    wait_until(lambda: [task["id"] for task in app(dcos, "plain")["tasks"] if task["id"] not in (first, *second)])
    assert (0.25, "exec sleep 1000") == (app(dcos, "plain")["cpus"], app(dcos, "plain")["cmd"])


def test_marathon_lists_versions_of_an_app(dcos) -> None:
    """The newest first. `dcos marathon app show --app-version=-1` reads them."""
    first = install(dcos, name="dev/app", a="old") and app(dcos, "dev/app")["version"]
    ask(dcos, "PUT", "/service/marathon/v2/apps/dev/app", '{"env": {"A": "new"}}')
    path = "/service/marathon/v2/apps/dev/app/versions"

    versions = json.loads(ask(dcos, "GET", path).text)["versions"]

    assert [app(dcos, "dev/app")["version"], first] == versions
    assert ["new", "old"] == [json.loads(ask(dcos, "GET", f"{path}/{name}").text)["env"]["A"] for name in versions]
    assert 404 == ask(dcos, "GET", f"{path}/2000-01-01T00:00:00.000Z").code


def test_marathon_groups_are_the_folders_of_apps(dcos) -> None:
    for name in ("dev/one", "dev/deep/two", "three"):
        install(dcos, name=name, command=SILENT)

    def group(path):
        return json.loads(ask(dcos, "GET", f"/service/marathon/v2/groups{path}").text)

    def ids(found):
        return [each["id"] for each in found["apps"]], [each["id"] for each in found["groups"]]

    assert (["/three"], ["/dev"]) == ids(group(""))
    assert (["/dev/one"], ["/dev/deep"]) == ids(group("/dev"))
    assert [group("/dev")] == group("")["groups"]


def test_killed_task_is_replaced_without_a_failure(dcos) -> None:
    """The app keeps its version; with `scale` it gets no new task."""
    install(dcos, name="killed", command=SILENT)
    install(dcos, name="other", command=SILENT)
    (first,) = (task["id"] for task in wait_until(lambda: app(dcos, "killed")["tasks"]))
    (other,) = (task["id"] for task in wait_until(lambda: app(dcos, "other")["tasks"]))
    version, path = app(dcos, "killed")["version"], "/service/marathon/v2/apps/killed/tasks"

    killed = json.loads(ask(dcos, "DELETE", path).text)["tasks"]

    assert [first] == [task["id"] for task in killed]
    (second,) = wait_until(lambda: [each["id"] for each in app(dcos, "killed")["tasks"] if each["id"] != first])
    assert (version, None) == (app(dcos, "killed")["version"], app(dcos, "killed").get("lastTaskFailure"))
    assert {"tasks": []} == json.loads(ask(dcos, "DELETE", f"{path}?host=elsewhere").text)
    assert 404 == ask(dcos, "DELETE", f"{path}/{other}").code
    assert second == json.loads(ask(dcos, "DELETE", f"{path}/{second}").text)["task"]["id"]
    wait_until(lambda: [each for each in app(dcos, "killed")["tasks"] if each["id"] != second])
    assert "deploymentId" in json.loads(ask(dcos, "DELETE", f"{path}?scale=true").text)
    wait_until(lambda: (app(dcos, "killed")["instances"], app(dcos, "killed")["tasks"]) == (0, []))
    assert [other] == [task["id"] for task in app(dcos, "other")["tasks"]]


def test_sandboxes_are_read_through_the_agent(dcos) -> None:
    """Also the sandbox of the last failed task, and no other files."""
    definition = {"id": "ends", "cmd": "echo why >&2; exit 3", "backoffSeconds": 1000}
    assert 201 == ask(dcos, "POST", "/service/marathon/v2/apps", json.dumps(definition)).code
    task = wait_until(lambda: app(dcos, "ends").get("lastTaskFailure"))["taskId"]
    agent = "/slave/marathon-agent"
    executors = json.loads(ask(dcos, "GET", f"{agent}/state.json").text)["frameworks"][0]["executors"]
    folder = next(each["directory"] for each in executors if each["id"] == task)

    browsed = json.loads(ask(dcos, "GET", f"{agent}/files/browse?path={folder}/.").text)

    assert [f"{folder}/stderr", f"{folder}/stdout"] == [file["path"] for file in browsed]
    assert (4, "-rw") == (browsed[0]["size"], browsed[0]["mode"][:3])
    read = f"{agent}/files/read.json?path={folder}/stderr"
    assert {"data": "", "offset": 4} == json.loads(ask(dcos, "GET", f"{read}&offset=-1&length=0").text)
    assert {"data": "hy", "offset": 1} == json.loads(ask(dcos, "GET", f"{read}&offset=1&length=2").text)
    assert 404 == ask(dcos, "GET", f"{agent}/files/browse?path={folder}/none").code
    assert 404 == ask(dcos, "GET", f"{agent}/files/read?path={folder}/../../apps.json&offset=0").code
    assert 400 == ask(dcos, "GET", f"{agent}/files/browse").code
    assert 400 == ask(dcos, "GET", f"{read}&offset=x").code


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/slave/marathon-agent/api/v1"),
        ("GET", "/slave/marathon-agent/metrics/snapshot"),
        ("GET", "/system/v1/agent/x/metrics/v0/containers/y"),
        ("GET", "/system/health/v1/nodes"),
        ("GET", "/service/metronome/v1/jobs"),
        ("POST", "/package/update"),
        ("GET", "/service/marathon/v2/pods"),
    ],
)
def test_missing_parts_of_dcos_answer_501_with_a_sentence(dcos, method, path) -> None:
    answer = ask(dcos, method, path)

    assert (501, True) == (answer.code, f"the local DC/OS does not have {method} " in answer.text)


def test_mesos_dns_knows_the_masters(dcos) -> None:
    """An unknown name has an empty address."""
    assert '[{"host":"leader.mesos.","ip":"127.0.0.1"}]' == ask(dcos, "GET", "/mesos_dns/v1/hosts/leader.mesos").text
    assert '[{"host":"","ip":""}]' == ask(dcos, "GET", "/mesos_dns/v1/hosts/none").text


def test_unreachable_mesos_is_502(dcos) -> None:
    assert 502 == ask(dcos, "GET", "/mesos/master/state.json").code
    assert "127.0.0.1:9 does not answer" in ask(dcos, "GET", "/mesos/master/state.json").text


def test_repository_has_its_media_type(dcos) -> None:
    """Cosmos distinguishes the versions by it."""
    answer = ask(dcos, "GET", "/universe/universe-v4.json")

    assert (200, content_type("v4")) == (answer.code, answer.kind)
    assert 404 == ask(dcos, "GET", "/universe/universe-v9.json").code
    assert (200, "served") == vars_of(ask(dcos, "GET", "/universe/file.txt"))


def test_server_record_exists_while_it_runs(tmp_path: Path) -> None:
    """Id and port stay the same after a restart."""
    cluster = SimpleNamespace(directory=tmp_path, master=SimpleNamespace(address="127.0.0.1:9"))
    folder = Folder(tmp_path)
    folder.universe.mkdir(parents=True)
    with serving(cluster, choose_port(folder)) as first:
        assert first == Record.read(folder)
    assert None is Record.read(folder)
    with serving(cluster, choose_port(folder)) as second:
        assert (first.url, first.cluster_id) == (second.url, second.cluster_id)


def test_service_with_tls_is_proxied_over_https(dcos, tmp_path: Path, certificates) -> None:
    """Its end is noticed even when its certificate is gone."""
    program = tmp_path / "service.py"
    program.write_text(
        STREAM.replace(".serve_forever()", "").replace("http.server.Threading", "server = http.server.Threading")
        + "import os, ssl\n"
        "if 'SDK_UNINSTALL' not in os.environ:\n"
        "    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n"
        f"    context.load_cert_chain{certificates.pair('stranger')}\n"
        "    server.socket = context.wrap_socket(server.socket, server_side=True)\n"
        "server.serve_forever()\n"
    )
    install(dcos, name="safe", command=f"exec {sys.executable} {program} $PORT0")
    more = {"DCOS_COMMONS_UNINSTALL": "true", "DCOS_SERVICE_SCHEME": "https"}
    labels = {**app(dcos, "safe")["labels"], **more}
    check = {"protocol": "MESOS_HTTPS", "path": "/whole", "delaySeconds": 0, "intervalSeconds": 0.05}
    changed = json.dumps({"labels": labels, "healthChecks": [check]})
    assert 200 == ask(dcos, "PUT", "/service/marathon/v2/apps/safe", changed).code
    wait_until(lambda: ask(dcos, "GET", "/service/safe/whole").code == 200)

    assert 200 == cosmos(dcos, "uninstall", packageName="small")[0]

    wait_until(lambda: ask(dcos, "GET", "/service/marathon/v2/apps/safe").code == 404)


def test_last_task_failure_has_the_task_output(dcos) -> None:
    install(dcos, name="ends", command="echo why >&2; exit 3")

    failure = wait_until(lambda: app(dcos, "ends").get("lastTaskFailure"))

    assert ("Command exited with status 3\nwhy", "TASK_FAILED") == (failure["message"], failure["state"])
