"""A Marathon app: the environment of its task, and its validation."""

import pytest

from dcos.app import App, Backoff, problems_of, task_environment

DEFINITION = {
    "id": "dev/digits",
    "cmd": "true",
    "cpus": 0.5,
    "mem": 256,
    "env": {"A": "1", "PORT0": "mine", "S": {"secret": "x"}},
    "labels": {"DCOS_SERVICE_NAME": "dev/digits", "lower-case": "2", "LONG": "x" * 600},
    "portDefinitions": [{"port": 0, "name": "api"}, {"port": 0}],
}
APP = App.of(DEFINITION, "2026-11-21T00:00:00.000Z")


def test_task_environment_is_marathons() -> None:
    """Ports, app, short labels and resources; the app's variables do not win."""
    found = task_environment(APP, "task-1", "127.0.0.1", (20001, 20002), "/sandbox")

    assert {
        "A": "1",
        "HOST": "127.0.0.1",
        "LIBPROCESS_IP": "127.0.0.1",
        "MARATHON_APP_ID": "/dev/digits",
        "MARATHON_APP_LABELS": "DCOS_SERVICE_NAME LOWER_CASE",
        "MARATHON_APP_LABEL_DCOS_SERVICE_NAME": "dev/digits",
        "MARATHON_APP_LABEL_LOWER_CASE": "2",
        "MARATHON_APP_RESOURCE_CPUS": "0.5",
        "MARATHON_APP_RESOURCE_DISK": "0.0",
        "MARATHON_APP_RESOURCE_GPUS": "0.0",
        "MARATHON_APP_RESOURCE_MEM": "256.0",
        "MARATHON_APP_VERSION": "2026-11-21T00:00:00.000Z",
        "MESOS_SANDBOX": "/sandbox",
        "MESOS_TASK_ID": "task-1",
        "PORT": "20001",
        "PORT0": "20001",
        "PORT1": "20002",
        "PORTS": "20001,20002",
        "PORT_API": "20001",
    } == found


def test_app_without_ports_has_no_port_variables() -> None:
    app = App.of({"id": "a", "cmd": "true"}, "v")

    assert not [name for name in task_environment(app, "t", "h", (), "/s") if name.startswith("PORT")]


def test_defaults_are_marathons() -> None:
    """Defaults: no health checks, one instance, 3 s grace period, 1 s back-off."""
    app = App.of({"id": "a", "cmd": "true", "healthChecks": [{"path": "/x"}]}, "v")

    assert ("/a", 1, 3.0, Backoff(1.0, 1.15, 300.0)) == (
        app.id,
        app.definition["instances"],
        app.kill_grace,
        app.backoff,
    )
    (check,) = app.health_checks
    assert ("HTTP", "/x", 0, 300, 60, 20, 3, 15) == tuple(getattr(check, name) for name in check.__slots__)


def test_delay_grows_to_its_limit() -> None:
    """1, 1.5, 2.25, then no more."""
    backoff = Backoff(1.0, 1.5, 2.0)

    assert [1.0, 1.5, 2.0, 2.0] == [backoff.after(delay) for delay in (0.0, 1.0, 1.5, 2.0)]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"id": "Upper"}, "/id"),
        ({"id": 1}, "/id"),
        ({"cmd": None}, "/"),
        ({"env": {"A": 1}}, "/env/A"),
        ({"env": {"A": {"secret": "none"}}}, "/env/A"),
        ({"labels": {"MARATHON_SINGLE_INSTANCE_APP": "true"}, "instances": 2}, "/instances"),
        ({"healthChecks": [{"portIndex": 2}]}, "/healthChecks/0/portIndex"),
        ({"healthChecks": [{"protocol": "COMMAND"}]}, "/healthChecks/0/protocol"),
        ({"container": {"type": "MESOS", "docker": {"image": "x"}}}, "/container"),
        ({"secrets": {"x": {"source": "y"}}}, "/secrets"),
    ],
)
def test_invalid_app_is_refused_with_path(change, path) -> None:
    definition = {**DEFINITION, "env": {}, **change}

    assert [path] == [problem.path for problem in problems_of(definition)]


def test_container_without_image_is_ignored() -> None:
    """The package's app has one whenever it has a secret volume or an image."""
    assert [] == problems_of({**DEFINITION, "env": {}, "container": {"type": "MESOS"}})
