"""`dcos tensorflow ...`, against the real API."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from builders import a_spec
from dcos_command.main import main
from tf_scheduler.api.app import create_app
from tf_scheduler.api.server import ApiServer
from tf_scheduler.api.views import Snapshot
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.package.artefacts import command_bytes


@pytest.fixture
def cluster():
    """An admin router with one service, dev/digits."""
    state = SchedulerState(a_spec(workers=1), framework_id="framework-1")
    seen = []

    async def busy(request):
        seen.append(request.headers.get("authorization"))
        return PlainTextResponse("Unauthorized", request.path_params["code"])

    routes = [
        Mount("/service/dev/digits", create_app(lambda: Snapshot(state))),
        Route("/service/broken/v1/plans", lambda request: PlainTextResponse("<html>")),
        Route("/service/{code:int}/v1/plans", busy),
    ]
    with ApiServer(Starlette(routes=routes), "127.0.0.1", 0) as server:
        server.seen = seen
        yield server


def run(cluster, *arguments, **environment):
    url = f"http://127.0.0.1:{cluster.port}"
    return main(["tensorflow", *arguments], {"DCOS_URL": url, "DCOS_DIR": "/nowhere", **environment})


def test_a_plan_is_a_tree(cluster, capsys):
    """As the SDK's commands draw it."""
    assert 0 == run(cluster, "--name=dev/digits", "plan", "status", "deploy")
    assert [
        "deploy (parallel strategy) (PENDING)",
        "├─ ps (parallel strategy) (PENDING)",
        "│  └─ ps-0 (PENDING)",
        "├─ worker (parallel strategy) (PENDING)",
        "│  └─ worker-0 (PENDING)",
        "└─ chief (parallel strategy) (PENDING)",
        "   └─ chief-0 (PENDING)",
    ] == capsys.readouterr().out.splitlines()


def test_json_is_what_the_api_gives(cluster, capsys):
    """For scripts."""
    assert 0 == run(cluster, "--name=/dev/digits", "plan", "show", "deploy", "--json")
    assert "PENDING" == json.loads(capsys.readouterr().out)["status"]


def test_the_configured_service_is_the_default(cluster, capsys):
    """`dcos config set tensorflow.service_name`, or the variable for it."""
    assert 0 == run(cluster, "plan", "list", DCOS_TENSORFLOW_SERVICE_NAME="dev/digits")
    assert "deploy" == json.loads(capsys.readouterr().out)[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--name=dev/digits", "plan", "status", "backup"], "Plan backup not found"),
        (["--name=other", "plan", "list"], "there is no service 'other'"),
        (["--name=401", "plan", "list"], "dcos auth login"),
        (["--name=503", "plan", "list"], "does not answer (HTTP 503)"),
        (["--name=broken", "plan", "list"], "answers no JSON"),
    ],
)
def test_what_goes_wrong_is_one_sentence(cluster, capsys, arguments, message):
    """On standard error, exit code 1."""
    assert 1 == run(cluster, *arguments)
    assert message in capsys.readouterr().err


def test_the_token_goes_along(cluster, capsys):
    """As DC/OS wants it."""
    run(cluster, "--name=401", "plan", "list", DCOS_ACS_TOKEN="a.b.c")

    assert ["token=a.b.c"] == cluster.seen


def test_a_cluster_that_does_not_answer(capsys):
    """Port 9 of loopback: nobody listens."""
    assert 1 == main(["plan", "list"], {"DCOS_URL": "http://127.0.0.1:9", "DCOS_DIR": "/nowhere"})
    assert "does not answer" in capsys.readouterr().err


def test_what_the_dcos_command_asks_for(capsys):
    """Both without a cluster."""
    assert [0, 0] == [main(["tensorflow", "--info"], {}), main(["tensorflow", "--config-schema"], {})]
    info, schema = capsys.readouterr().out.splitlines()
    assert "TensorFlow" in info
    assert ["service_name"] == list(json.loads(schema)["properties"])


def interpreters():
    homes = [*Path.home().glob(".pyenv/versions/3.*/bin"), *map(Path, os.get_exec_path())]
    found = {name: home / name for home in homes for name in (f"python3.{minor}" for minor in range(8, 14))
             if (home / name).is_file() and home.name == "bin" and "shims" not in home.parts}  # fmt: skip
    return [found[name] for name in sorted(found)] or [Path(sys.executable)]


@pytest.mark.parametrize("python", interpreters(), ids=lambda path: path.name)
def test_the_installed_file_runs_on_every_python(cluster, tmp_path, python):
    """Alone: no site-packages, nothing of the checkout."""
    program = tmp_path / "dcos-tensorflow"
    program.write_bytes(command_bytes())
    command = [python, "-I", "-S", "-W", "error", program, "tensorflow", "--name=dev/digits", "plan", "list"]

    environment = {"DCOS_URL": f"http://127.0.0.1:{cluster.port}", "DCOS_DIR": str(tmp_path)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert (0, "deploy", "") == (result.returncode, json.loads(result.stdout)[0], result.stderr)
