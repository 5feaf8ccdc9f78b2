"""Commands `state`: show, export and import a scheduler's stored state.

The state contains no secrets: they are fetched at each start, and never stored.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

import dcos_command.service  # noqa: F401 - declares the commands of a service
from dcos_command.command import COMMANDS, Group, echo, examples
from dcos_command.output import Table
from tf_scheduler import __version__
from tf_scheduler.cli.common.folders import UserPath, file_type, write_private
from tf_scheduler.cli.common.output import echo_json, echo_result, json_option, screen
from tf_scheduler.errors import JobError, NotRunningError
from tf_scheduler.service.store import acquire_leadership, open_store, state_file
from tf_scheduler.store.backup import Backup, BackupError, decode, encode, readable
from tf_scheduler.store.interface import Delete, Put, StateStore, StoreConflictError, StoreUnavailableError, service_key
from tf_scheduler.store.journal import JOURNAL_ID
from tf_scheduler.store.records import FRAMEWORK, RESULT, STATUSES, TASKS, changes

_LEADER_TIMEOUT = 2.0  # seconds to become the leading scheduler
_STDIO = Path("-")

address_argument = click.argument("address")
service_option = click.option(
    "--service", default="tensorflow", metavar="NAME", show_default=True, help="Name of the service."
)


@click.group(cls=Group)
@examples("state show zk://master.mesos:2181 --service mnist", "state properties")
def state() -> None:
    """Show, export and import the state of a scheduler.

    ADDRESS is zk://HOST:PORT,HOST:PORT/CHROOT (zks:// with TLS; on DC/OS zk://master.mesos:2181), or the path of a
    SQLite file.
    """


@state.command()
@examples("state show zk://master.mesos:2181 --service mnist")
@address_argument
@service_option
@json_option
def show(address: str, service: str, as_json: bool) -> None:
    """Show the stored framework, result and tasks.

    The command is safe while a scheduler runs.

    Exit code: 3 nothing is stored, or the store does not answer.
    """
    values = _load_values(address, service)
    tasks = [_task(value, values) for key, value in sorted(values.items()) if key.startswith(f"{TASKS}/")]
    summary = {
        "service": service_key(service),
        "framework_id": readable(values.get(FRAMEWORK, b"")).get("id"),
        "result": readable(values.get(RESULT, b"")) or None,
        "tasks": tasks,
        "values": dict(Counter(key.partition("/")[0] for key in values)),
    }
    if as_json:
        echo_json(summary)
    else:
        _print(summary)


@state.command()
@examples("state export zk://master.mesos:2181 --output backup.json")
@address_argument
@service_option
@click.option(
    "--output",
    type=UserPath(dir_okay=False, allow_dash=True),
    default=_STDIO,
    show_default="standard output",
    help="File to write, readable by its owner only.",
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
def export(address: str, service: str, output: Path, force: bool) -> None:
    """Export a consistent snapshot of the state as JSON.

    The command is safe while a scheduler runs.

    Exit code: 3 nothing is stored, or the store does not answer.
    """
    backup = Backup(service_key(service), _load_values(address, service))
    text = encode(backup, datetime.now(timezone.utc), __version__)
    if output == _STDIO:
        echo(text, nl=False)
        return
    if output.exists() and not force:
        raise JobError(f"--output {output}: already exists; choose another name, or use --force")
    write_private(output, text)
    echo(f"wrote {output}", err=True)


@state.command(name="import")
@examples("state import zk://master.mesos:2181 backup.json --replace")
@address_argument
@click.argument("file", type=file_type)
@click.option("--service", metavar="NAME", help="Name of the service. Default: as in FILE.")
@click.option("--replace", is_flag=True, help="Replace the whole stored state of the service.")
@json_option
def import_(address: str, file: Path, service: str | None, replace: bool, as_json: bool) -> None:
    """Import FILE, written by `state export`, in one transaction.

    FILE may be - for standard input. Stop the scheduler first. With ZooKeeper, the
    import fails without changes if a scheduler runs. With a SQLite file, a running scheduler exits at its next write.
    """
    backup = _read(file)
    name = service_key(service or backup.service)
    with _store_errors(), closing(open_store(address, name)) as store:
        replaced = _restore(store, backup.values, address, name, replace)
    done = {"service": name, "address": _without_password(address), "values": len(backup.values), "replaced": replaced}
    echo_result(done, f"stored {len(backup.values)} values of service {name}", as_json)


def _restore(store: StateStore, values: Mapping[str, bytes], address: str, name: str, replace: bool) -> int:
    """Store the values; return the number of replaced values."""
    acquire_leadership(store, timeout=_LEADER_TIMEOUT)
    before = store.load()
    if before and not replace:
        raise JobError(
            f"{_without_password(address)}: service {name} has {len(before)} stored values; replace them with --replace"
        )
    deletions = [Delete(key) for key in before if key not in values]
    # Events since the backup are lost, and their numbers are used again: a new id tells readers of the journal.
    new_journal = [Delete(JOURNAL_ID)] if before else []
    store.apply([*deletions, *(Put(key, value) for key, value in values.items()), *new_journal])
    return len(before)


def _read(file: Path) -> Backup:
    """Return the backup in a file. Raises JobError if this version cannot use it."""
    try:
        text = sys.stdin.read() if file == _STDIO else file.read_text(encoding="utf-8")
        backup = decode(text)
    except OSError as error:
        raise JobError(f"{file}: {error.strerror}") from error
    except (UnicodeDecodeError, BackupError) as error:
        raise JobError(f"{file}: cannot be read: {error}") from error
    changes(backup.values, str(file))
    return backup


def _load_values(address: str, service: str) -> Mapping[str, bytes]:
    """Return the stored values of a service. Raises NotRunningError if there are none."""
    file = state_file(address)
    if file is not None and not file.exists():
        raise NotRunningError(f"{file}: file does not exist")
    with _store_errors(), closing(open_store(address, service)) as store:
        values = store.load()
    if not values:
        raise NotRunningError(f"service {service}: no state stored in {_without_password(address)}")
    return values


@contextmanager
def _store_errors() -> Iterator[None]:
    """Raise errors with exit code 3 for an unavailable store, and 1 for a conflict."""
    try:
        yield
    except StoreUnavailableError as error:
        raise NotRunningError(str(error)) from error
    except StoreConflictError as error:
        raise JobError(f"{error}; nothing was changed") from error


def _without_password(address: str) -> str:
    """Return the address of a store without its password, for messages."""
    scheme, separator, rest = address.partition("?")[0].partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}" if separator else address


def _task(record: bytes, values: Mapping[str, bytes]) -> dict[str, Any]:
    fields = readable(record)
    status = readable(values.get(f"{STATUSES}/{fields.get('id')}", b""))
    names = ("name", "id", "hostname", "address", "generation")
    return {**{name: fields.get(name) for name in names}, "state": status.get("state")}


def _print(summary: Mapping[str, Any]) -> None:
    result, names = summary["result"], ("name", "state", "hostname", "address", "generation")
    rows = [[str(task[name] or "-") for name in names] for task in summary["tasks"]]
    screen().show(
        [
            f"service    {summary['service']}",
            f"framework  {summary['framework_id'] or 'none'}",
            *([] if result is None else [f"result     {result.get('verdict')}: {result.get('reason')}"]),
            Table(("task", "state", "host", "address", "generation"), rows, "no task"),
            ", ".join(f"{kind}: {count}" for kind, count in sorted(summary["values"].items())),
        ]
    )


#: Commands that ask a running scheduler.
_OF_A_SERVICE = COMMANDS.commands["state"]
assert isinstance(_OF_A_SERVICE, Group), "declared by dcos_command.service"
for _command in _OF_A_SERVICE.commands.values():
    state.add_command(_command)
