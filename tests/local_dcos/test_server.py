"""The endpoints over real HTTP, for requests that the dcos command does not send."""

import base64
import http.client
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from dcos.folder import Folder
from dcos.server import choose_port, serving
from dcos_command import command
from dcos_command.client import ServiceClient
from dcos_command.main import main
from kit.waiting import wait_until

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
    monkeypatch.setattr(command, "confirm", yes)

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


def vars_of(answer):
    return answer.code, answer.text


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
