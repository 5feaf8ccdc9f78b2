"""`dcos tensorflow ...`: its own behaviour."""

import json
import sys
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import dcos_command
from builders import a_spec
from dcos_command.main import main
from kit.interpreters import interpreters, library_path, output_of
from live_api import LiveApi
from tf_scheduler.package.artefacts import command_bytes


@pytest.fixture
def api():
    """An admin router with one working service; `seen`: the tokens that were sent."""
    seen = []

    async def busy(request):
        seen.append(request.headers.get("authorization"))
        return PlainTextResponse("Unauthorized", request.path_params["code"])

    routes = [
        Route("/service/broken/v1/plans", lambda request: PlainTextResponse("<html>")),
        Route("/service/{code:int}/v1/plans", busy),
        Route("/service/{rest:path}", lambda request: PlainTextResponse("<html>", 404)),
    ]
    with LiveApi(a_spec(name="dev/digits"), after=routes) as live:
        live.seen = seen
        yield live


@pytest.mark.parametrize("words", ["plan list", "pod list", "endpoints", "debug config list", "debug state properties"])
def test_commands_with_json_in_the_sdk_print_json(dcos, words):
    """Scripts read it; `dcos-tensorflow` prints lines."""
    assert isinstance(dcos(*words.split()).json, list)


def test_configured_service_is_the_default(api, capsys):
    """`dcos config set tensorflow.service_name`, or the variable for it."""
    environment = {"DCOS_URL": api.url, "DCOS_DIR": "/nowhere", "DCOS_TENSORFLOW_SERVICE_NAME": "dev/digits"}

    assert 0 == main(["tensorflow", "plan", "list"], environment)
    assert "deploy" == json.loads(capsys.readouterr().out)[0]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--name=/dev/digits", "plan", "status", "backup"], 1, "Plan backup not found"),
        (["plan", "list", "--name=other"], 3, "service `other` does not exist"),
        (["--name=401", "plan", "list"], 1, "dcos auth login"),
        (["--name=503", "plan", "list"], 3, "does not answer (HTTP 503): the scheduler is starting"),
        (["--name=broken", "plan", "list"], 3, "does not answer as a scheduler: not JSON: "),
    ],
)
def test_error_has_message_and_exit_code(dcos, arguments, code, message):
    result = dcos(*arguments)

    assert code == result.code
    assert message in result.err


def test_unreachable_service_is_a_json_document(dcos):
    result = dcos("--name=503", "plan", "status", DCOS_TENSORFLOW_JSON="1")

    assert (3, "unreachable") == (result.code, json.loads(result.out)["error"]["code"])


def test_dcos_token_is_sent(dcos, api):
    dcos("--name=401", "plan", "list", DCOS_ACS_TOKEN="a.b.c")

    assert ["token=a.b.c"] == api.seen


def test_unreachable_cluster_exits_with_3(capsys):
    assert 3 == main(["plan", "list"], {"DCOS_URL": "http://127.0.0.1:9", "DCOS_DIR": "/nowhere"})
    assert "does not answer: Connection refused" in capsys.readouterr().err


def test_info_and_config_schema_need_no_cluster(capsys):
    assert [0, 0] == [main(["tensorflow", "--info"], {}), main(["tensorflow", "--config-schema"], {})]
    info, schema = capsys.readouterr().out.splitlines()
    assert "TensorFlow" in info
    assert ["service_name", "token"] == list(json.loads(schema)["properties"])
    assert 0 == main(["tensorflow"], {})
    assert "Usage: dcos tensorflow" in capsys.readouterr().out


@pytest.mark.parametrize("words", ["", "plan", "plan status", "debug config", "endpoint"])
@pytest.mark.parametrize("program", ["dcos", "own"])
def test_help_command_prints_the_help(program, words, request, monkeypatch: pytest.MonkeyPatch):
    """As the DC/OS SDK's sub-commands do; also after an option of the program."""
    monkeypatch.setenv("COLUMNS", "60")
    ask = request.getfixturevalue(program)

    assert (
        ask(*words.split(), "--help").lines
        == ask("help", *words.split()).lines
        == ask("--json", "help", *words.split()).lines
    )


@pytest.mark.parametrize(("words", "wrong"), [("nosuch", "nosuch"), ("plan nosuch", "nosuch"), ("progress x", "x")])
def test_help_of_an_unknown_command_is_wrong_usage(dcos, words, wrong):
    result = dcos("help", *words.split())

    assert (2, "", True) == (result.code, result.out, f"No such command '{wrong}'." in result.err)


@pytest.mark.parametrize("flag", ["--info", "--config-schema"])
def test_both_programs_have_the_same_info(own, dcos, flag):
    assert own(flag).lines == dcos(flag).lines
    assert 1 == len(own(flag).lines)


IMPORT_EACH = """
import importlib, pkgutil, sys
import dcos_command
for module in list(pkgutil.iter_modules(dcos_command.__path__, "dcos_command.")):
    for name in [name for name in sys.modules if name.partition(".")[0] == "dcos_command"]:
        del sys.modules[name]
    importlib.import_module(module.name)
    print(module.name)
"""


def test_each_module_can_be_imported_first(tmp_path):
    """A group exists before any module declares commands in it."""
    names = output_of([sys.executable, "-c", IMPORT_EACH], tmp_path, PYTHONPATH=library_path()).splitlines()

    assert names == sorted(
        f"dcos_command.{path.stem}" for path in Path(dcos_command.__path__[0]).glob("*.py") if path.stem != "__init__"
    )


@pytest.mark.parametrize("python", interpreters(8, 13) or [Path(sys.executable)], ids=lambda path: path.name)
def test_zipapp_runs_on_every_python(api, tmp_path, python):
    """Without site-packages and checkout."""
    api.deploy()
    program = tmp_path / "dcos-tensorflow"
    program.write_bytes(command_bytes())
    command = [python, "-I", "-S", "-W", "error", program, "tensorflow", "--name=dev/digits"]
    environment = {"DCOS_URL": api.url, "DCOS_DIR": str(tmp_path), "PYTHONUTF8": "1"}

    for words in ("plan status deploy", "progress"):
        assert output_of([*command, *words.split()], tmp_path, **environment), words
