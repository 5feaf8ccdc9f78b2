"""`dcos tensorflow ...`: what is its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from builders import a_spec
from dcos_command.main import main
from live_api import LiveApi
from tf_scheduler.package.artefacts import command_bytes


@pytest.fixture
def api():
    """An admin router with one service, and some that do not work; `seen`: the tokens that they were sent."""
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
def test_what_the_sdk_prints_as_json_is_json(dcos, words):
    """Scripts read it; `dcos-tensorflow` prints lines."""
    assert isinstance(dcos(*words.split()).json, list)


def test_json_may_be_wanted_once_for_all(dcos):
    """By a variable."""
    assert isinstance(dcos("plan", "status", "deploy", DCOS_TENSORFLOW_JSON="1").json, dict)


def test_the_configured_service_is_the_default(api, capsys):
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
        (["--name=503", "plan", "list"], 3, "does not answer (HTTP 503): it is starting"),
        (["--name=broken", "plan", "list"], 1, "did not return JSON"),
    ],
)
def test_what_goes_wrong_is_one_sentence(dcos, arguments, code, message):
    """On standard error; an exit code that scripts can tell apart."""
    result = dcos(*arguments)

    assert code == result.code
    assert message in result.err


def test_nobody_there_is_a_document_too(dcos):
    """With the variable as with --json; the exit code stays."""
    result = dcos("--name=503", "plan", "status", DCOS_TENSORFLOW_JSON="1")

    assert (3, "unreachable") == (result.code, json.loads(result.out)["error"]["code"])


def test_the_token_goes_along(dcos, api):
    """As DC/OS wants it."""
    dcos("--name=401", "plan", "list", DCOS_ACS_TOKEN="a.b.c")

    assert ["token=a.b.c"] == api.seen


def test_a_cluster_that_does_not_answer(capsys):
    """Port 9 of loopback: nobody listens."""
    assert 3 == main(["plan", "list"], {"DCOS_URL": "http://127.0.0.1:9", "DCOS_DIR": "/nowhere"})
    assert "does not answer: Connection refused" in capsys.readouterr().err


def test_what_the_dcos_command_asks_for(capsys):
    """Both without a cluster; nothing at all shows what there is."""
    assert [0, 0] == [main(["tensorflow", "--info"], {}), main(["tensorflow", "--config-schema"], {})]
    info, schema = capsys.readouterr().out.splitlines()
    assert "TensorFlow" in info
    assert ["service_name"] == list(json.loads(schema)["properties"])
    assert 0 == main(["tensorflow"], {})
    assert "Usage: dcos tensorflow" in capsys.readouterr().out


@pytest.mark.parametrize("flag", ["--info", "--config-schema"])
def test_both_programs_answer_the_dcos_command_alike(own, dcos, flag):
    """One line."""
    assert own(flag).lines == dcos(flag).lines
    assert 1 == len(own(flag).lines)


def interpreters():
    homes = [*Path.home().glob(".pyenv/versions/3.*/bin"), *map(Path, os.get_exec_path())]
    found = {name: home / name for home in homes for name in (f"python3.{minor}" for minor in range(8, 14))
             if (home / name).is_file() and home.name == "bin" and "shims" not in home.parts}  # fmt: skip
    return [found[name] for name in sorted(found)] or [Path(sys.executable)]


@pytest.mark.parametrize("python", interpreters(), ids=lambda path: path.name)
def test_the_installed_file_runs_on_every_python(api, tmp_path, python):
    """Alone: no site-packages, nothing of the checkout."""
    api.deploy()
    program = tmp_path / "dcos-tensorflow"
    program.write_bytes(command_bytes())
    command = [python, "-I", "-S", "-W", "error", program, "tensorflow", "--name=dev/digits"]
    environment = {"DCOS_URL": api.url, "DCOS_DIR": str(tmp_path), "PYTHONUTF8": "1"}

    for words in ("plan status deploy", "progress"):
        result = subprocess.run(
            [*command, *words.split()], env=environment, capture_output=True, text=True, check=False
        )
        assert (0, "") == (result.returncode, result.stderr), words
        assert result.stdout, words
