"""`dcos-tensorflow state`: show, export, import, for a file and a real ZooKeeper."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from builders import a_job, a_spec, a_status, an_offer
from kit import lanes
from kit.shared import SharedServers
from tf_executor.contract.states import TaskState
from tf_scheduler.model.events import OffersReceived, StatusUpdated, Subscribed
from tf_scheduler.model.spec import JobKind
from tf_scheduler.runner import Runner, restore
from tf_scheduler.service.store import acquire_leadership, open_store
from tf_scheduler.store.interface import Put, StoreConflictError, StoreCorruptError
from tf_scheduler.store.journal import EventJournal

SECRET = "hunter2"
SPEC = a_spec(
    name="group/tf",
    jobs=(a_job(JobKind.WORKER, 2, command=f"train --key {SECRET}", environment={"KEY": SECRET}),),
    principal=SECRET,
)


class IdleDriver:
    """A driver that is never connected."""

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""

    def perform(self, call) -> None:
        """Do nothing."""


@pytest.fixture
def zookeeper(module_servers: SharedServers) -> str:
    return module_servers.ensemble().addresses


@pytest.fixture(params=["file", "path", lanes.parameter("zookeeper", "zookeeper")])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """Return the address of a state store by its name."""
    if request.param == "zookeeper":
        servers = request.getfixturevalue("zookeeper")
        return lambda name: f"zk://me:{SECRET}@{servers}{tmp_path}/{name}?session_timeout=5"
    prefix = "file://" if request.param == "file" else ""
    return lambda name: f"{prefix}{tmp_path}/{name}.db"


@pytest.fixture
def command(invoke: Callable[..., tuple[int, str, str]]) -> Callable[..., tuple[int, str, str]]:
    """Run `dcos-tensorflow state ...`, which never prints the secret."""

    def invoke_state(*arguments: object) -> tuple[int, str, str]:
        code, out, err = invoke("state", *arguments)
        assert SECRET not in out + err
        return code, out, err

    return invoke_state


def live(address: str) -> dict[str, bytes]:
    """Return the state of a scheduler that launched two tasks and got one status."""
    with closing(open_store(address, SPEC.name)) as store:
        acquire_leadership(store)
        numbers = iter(range(100))
        state = restore(SPEC, store)
        runner = Runner(state, store, clock=lambda: 1.7e9, new_id=lambda: f"{next(numbers):032x}")
        runner.put(lambda: Subscribed("fw-1"))
        runner.put(lambda: OffersReceived((an_offer(),)))
        runner.put(lambda: StatusUpdated(a_status(runner.state.stored.tasks["worker-0"].id, TaskState.RUNNING)))
        runner.put(runner.abort)
        runner.run(IdleDriver())
        return dict(store.load())


def test_backup_moves_service_to_another_store(place, command, tmp_path: Path) -> None:
    """All values are the same, and a scheduler continues with them."""
    stored = live(place("old"))
    backup = tmp_path / "backup.json"
    assert (0, "") == command("export", place("old"), "--service", SPEC.name, "--output", backup)[:2]
    assert 0o600 == stat.S_IMODE(backup.stat().st_mode)
    code, out, _ = command("import", place("new"), backup, "--json")

    assert 0 == code
    done = json.loads(out)
    assert ("group/tf", len(stored), 0) == (done["service"], done["values"], done["replaced"])
    with closing(open_store(place("new"), SPEC.name)) as store:
        assert stored == store.load()
        state = restore(SPEC, store)
    assert "fw-1" == state.stored.framework_id
    assert {"worker-0", "worker-1"} == state.stored.tasks.keys()


def test_stored_values_have_no_secrets(place) -> None:
    """Neither environment nor command nor principal of a job."""
    stored = live(place("here"))

    assert len(stored) >= 4
    assert not [key for key, value in stored.items() if SECRET.encode() in value or SECRET in key]


def test_show_prints_framework_and_tasks(place, command) -> None:
    """For people and as JSON."""
    live(place("here"))
    code, out, _ = command("show", place("here"), "--service", f"/{SPEC.name}", "--json")
    summary = json.loads(out)
    tasks = {task["name"]: task for task in summary["tasks"]}

    assert 0 == code
    assert ("group/tf", "fw-1", None) == (summary["service"], summary["framework_id"], summary["result"])
    assert {"worker-0": "TASK_RUNNING", "worker-1": None} == {name: task["state"] for name, task in tasks.items()}
    assert {"agent-1"} == {task["hostname"] for task in tasks.values()}
    assert 2 == summary["values"]["tasks"]
    code, text, _ = command("show", place("here"), "--service", SPEC.name)
    assert 0 == code
    for word in ("group/tf", "fw-1", "worker-0", "TASK_RUNNING", tasks["worker-1"]["address"], "tasks: 2"):
        assert word in text


def test_backup_replaces_damaged_value(place, command, tmp_path: Path) -> None:
    """The scheduler names the file or node and the command that repairs it."""
    backup = tmp_path / "backup.json"
    live(place("here"))
    command("export", place("here"), "--service", SPEC.name, "--output", backup)
    with closing(open_store(place("here"), SPEC.name)) as store:
        store.apply([Put("framework", store.load()["framework"].replace(b"fw-1", b"fw-2"))])
        with pytest.raises(StoreCorruptError) as caught:
            restore(SPEC, store)
        assert f"stored value 'framework' in {store.place} cannot be read: its checksum is wrong" in str(caught.value)
        assert "state import --replace" in str(caught.value)
        name = "here.db" if place("here").endswith("here.db") else "dcos-service-group__tf in zk://"
        assert name in store.place

    assert 0 == command("import", place("here"), backup, "--replace")[0]
    with closing(open_store(place("here"), SPEC.name)) as store:
        assert "fw-1" == restore(SPEC, store).stored.framework_id


def test_import_replaces_state_only_with_replace(place, command, tmp_path: Path) -> None:
    """And then as a whole."""
    backup = tmp_path / "backup.json"
    stored = live(place("old"))
    command("export", place("old"), "--service", SPEC.name, "--output", backup)
    with closing(open_store(place("new"), SPEC.name)) as store:
        store.load()
        store.apply([Put("framework", b'{"id": "other", "schema": 1}'), Put("left/over", b"{}")])
        code, _, err = command("import", place("new"), backup)
        assert (1, True) == (code, "2 stored values" in err and "--replace" in err)
        assert 2 == len(store.load())
        code, out, _ = command("import", place("new"), backup, "--replace")
        assert (0, f"stored {len(stored)} values of service group/tf\n") == (code, out)
        with pytest.raises(StoreConflictError):
            store.apply([Put("late", b"")])
        assert stored == store.load()


def test_import_over_state_starts_another_journal(place, command, tmp_path: Path) -> None:
    """Because event numbers are used again. In an empty store the journal continues."""
    backup = tmp_path / "backup.json"
    live(place("old"))
    with closing(open_store(place("old"), SPEC.name)) as store, EventJournal(store) as journal:
        journal.note("Tick", "before")
    command("export", place("old"), "--service", SPEC.name, "--output", backup)

    same_journal = []
    for where, more in (("new", ()), ("old", ("--replace",))):
        assert 0 == command("import", place(where), backup, *more)[0]
        with closing(open_store(place(where), SPEC.name)) as store:
            again = EventJournal(store)
        assert ["before"] == [entry.message for entry in again.after(0)]
        same_journal.append(again.id == journal.id)
    assert [True, False] == same_journal


def test_import_can_rename_the_service(place, command, tmp_path: Path) -> None:
    backup = tmp_path / "backup.json"
    stored = live(place("old"))
    command("export", place("old"), "--service", SPEC.name, "--output", backup)

    assert 0 == command("import", place("old"), backup, "--service", "renamed")[0]
    with closing(open_store(place("old"), "renamed")) as store:
        assert stored == store.load()


def test_show_of_missing_state_creates_nothing(place, command, tmp_path: Path) -> None:
    """Exit code 3."""
    assert 3 == command("show", place("nowhere"))[0]
    live(place("here"))
    code, out, err = command("export", place("here"), "--service", "other")

    assert (3, "") == (code, out)
    assert "service other: no state stored" in err
    assert not (tmp_path / "nowhere.db").exists()


def test_export_keeps_existing_file_without_force(place, command, tmp_path: Path) -> None:
    live(place("here"))
    backup = tmp_path / "backup.json"
    backup.write_text("precious")
    code, _, err = command("export", place("here"), "--service", SPEC.name, "--output", backup)
    assert (1, "precious") == (code, backup.read_text())
    assert "--force" in err

    assert 0 == command("export", place("here"), "--service", SPEC.name, "--output", backup, "--force")[0]
    assert "group/tf" == json.loads(backup.read_text())["service"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "invalid JSON"),
        ('{"format": "dcos-tensorflow state", "version": 1, "service": "tf", "values": {}}', "'binary' must be"),
        (
            '{"format": "dcos-tensorflow state", "version": 1, "service": "tf", "binary": {},'
            ' "values": {"framework": {"id": "fw", "schema": 99}}}',
            "backup.json was written by a newer version",
        ),
    ],
)
def test_invalid_backup_is_not_imported(command, tmp_path: Path, text: str, message: str) -> None:
    """Nor a backup of a newer version; nothing is created."""
    backup = tmp_path / "backup.json"
    backup.write_text(text)
    code, _, err = command("import", tmp_path / "new.db", backup)

    assert 1 == code
    assert message in err
    assert not (tmp_path / "new.db").exists()


def test_invalid_state_address_is_reported(command, tmp_path: Path) -> None:
    """With valid forms."""
    for address in ("http://a/b", f"zk://me:{SECRET}@a/../b"):
        code, _, err = command("show", address)
        assert (1, True) == (code, "zk://" in err)


@pytest.mark.usefixtures("real_zookeeper")
def test_import_rejects_running_scheduler(zookeeper, command, tmp_path: Path) -> None:
    """The message names its process, and nothing is changed; show and export work."""
    address = f"zk://{zookeeper}/live?session_timeout=5"
    live(address)
    backup = tmp_path / "backup.json"
    with closing(open_store(address, SPEC.name)) as store:
        leadership = acquire_leadership(store)
        store.load()
        assert 0 == command("show", address, "--service", SPEC.name)[0]
        assert 0 == command("export", address, "--service", SPEC.name, "--output", backup)[0]
        code, _, err = command("import", address, backup, "--replace")
        assert (3, True) == (code, "another scheduler leads this service: process" in err)
        leadership.check()
        store.apply([Put("goes/on", b"{}")])


@pytest.mark.usefixtures("real_zookeeper")
def test_unavailable_store_exits_with_3(command) -> None:
    code, _, err = command("show", "zk://127.0.0.1:1?request_timeout=1")

    assert 3 == code
    assert "127.0.0.1:1" in err
