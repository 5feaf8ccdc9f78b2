"""`dcos-tensorflow state`: what a scheduler has stored, for people, and as a backup.

No stored value has a secret: those are fetched at each start, and never kept.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from dcos_command.main import Group, add_group_commands
from dcos_command.output import Table
from tf_scheduler import __version__
from tf_scheduler.cli.common.output import json_option, screen
from tf_scheduler.cli.main import SERVICE_PROGRAM
from tf_scheduler.errors import JobError, NotRunningError
from tf_scheduler.service.store import acquire_leadership, open_store, state_file
from tf_scheduler.store.backup import Backup, BackupError, decode, encode, readable
from tf_scheduler.store.interface import Delete, Put, StateStore, StoreConflictError, StoreUnavailableError, service_key
from tf_scheduler.store.journal import JOURNAL_ID
from tf_scheduler.store.records import FRAMEWORK, RESULT, STATUSES, TASKS, changes

_LEADER_TIMEOUT = 2.0  # seconds to find out that nobody leads
_STDIO = Path("-")

address_argument = click.argument("address")
service_option = click.option("--service", default="tensorflow", show_default=True, help="Name of the service.")


@click.group(cls=Group)
def state() -> None:
    """What a scheduler has stored: look at it, back it up, bring it back.

    ADDRESS says where: zk://HOST:PORT,HOST:PORT/CHROOT (zks:// with TLS; on DC/OS zk://master.mesos:2181), or the path
    of a SQLite file.
    """


@state.command()
@address_argument
@service_option
@json_option
def show(address: str, service: str, as_json: bool) -> None:
    """Print the framework, the result and the tasks that are stored. Disturbs no scheduler.

    Exit code 3: nothing is stored, or nothing answers.
    """
    found = _summary(service, _load_values(address, service))
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        _print(found)


@state.command()
@address_argument
@service_option
@click.option(
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default=_STDIO,
    show_default="standard output",
    help="File to write, readable by its owner only.",
)
@click.option("--force", is_flag=True, help="Replace the file if there is one.")
def export(address: str, service: str, output: Path, force: bool) -> None:
    """Print everything that is stored as one JSON document, all of one moment. Disturbs no scheduler."""
    backup = Backup(service_key(service), _load_values(address, service))
    text = encode(backup, datetime.now(timezone.utc), __version__)
    if output == _STDIO:
        click.echo(text, nl=False)
        return
    if output.exists() and not force:
        raise JobError(f"--output {output}: there is such a file; give another name, or --force")
    _write_private(output, text)
    click.echo(f"wrote {output}", err=True)


@state.command(name="import")
@address_argument
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--service", help="Name of the service. Default: the one of the document.")
@click.option("--replace", is_flag=True, help="Replace what is stored of the service, all of it.")
@json_option
def import_(address: str, file: Path, service: str | None, replace: bool, as_json: bool) -> None:
    """Store what `state export` wrote to FILE (- for standard input), in one step.

    End the scheduler first. In ZooKeeper a scheduler that lives is noticed, and nothing is changed; with a SQLite file
    such a scheduler ends at its next write.
    """
    backup = _read(file)
    name = service_key(service or backup.service)
    with _store_errors(), closing(open_store(address, name)) as store:
        replaced = _restore(store, backup.values, address, name, replace)
    done = {"service": name, "address": _without_password(address), "values": len(backup.values), "replaced": replaced}
    click.echo(json.dumps(done, indent=2) if as_json else f"stored {len(backup.values)} values of service {name}")


def _restore(store: StateStore, values: Mapping[str, bytes], address: str, name: str, replace: bool) -> int:
    """How many values were replaced."""
    acquire_leadership(store, timeout=_LEADER_TIMEOUT)
    before = store.load()
    if before and not replace:
        raise JobError(
            f"{_without_password(address)}: service {name} has {len(before)} values; replace them with --replace"
        )
    gone = [Delete(key) for key in before if key not in values]
    # Events since the backup are gone, their numbers come again: who has seen them learns that it is another journal.
    anew = [Delete(JOURNAL_ID)] if before else []
    store.apply([*gone, *(Put(key, value) for key, value in values.items()), *anew])
    return len(before)


def _read(file: Path) -> Backup:
    """The backup in a file, usable by this program."""
    try:
        text = sys.stdin.read() if file == _STDIO else file.read_text(encoding="utf-8")
        backup = decode(text)
    except (OSError, UnicodeDecodeError, BackupError) as error:
        raise JobError(f"{file} cannot be read: {error}") from error
    changes(backup.values)
    return backup


def _load_values(address: str, service: str) -> Mapping[str, bytes]:
    """All that is stored of a service, which is something."""
    file = state_file(address)
    if file is not None and not file.exists():
        raise NotRunningError(f"there is no file {file}")
    with _store_errors(), closing(open_store(address, service)) as store:
        values = store.load()
    if not values:
        raise NotRunningError(f"nothing is stored of service {service} in {_without_password(address)}")
    return values


@contextmanager
def _store_errors() -> Iterator[None]:
    """Exit code 3 for what does not answer, a hint for who is in the way."""
    try:
        yield
    except StoreUnavailableError as error:
        raise NotRunningError(str(error)) from error
    except StoreConflictError as error:
        raise JobError(f"{error}. Nothing was changed") from error


def _without_password(address: str) -> str:
    """Without a password."""
    scheme, separator, rest = address.partition("?")[0].partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}" if separator else address


def _write_private(path: Path, text: str) -> None:
    """Whole or not at all."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)


def _summary(service: str, values: Mapping[str, bytes]) -> dict[str, Any]:
    kinds: dict[str, int] = {}
    for key in values:
        kind = key.partition("/")[0]
        kinds[kind] = kinds.get(kind, 0) + 1
    tasks = [_task(value, values) for key, value in sorted(values.items()) if key.startswith(f"{TASKS}/")]
    return {
        "service": service_key(service),
        "framework_id": readable(values.get(FRAMEWORK, b"")).get("id"),
        "result": readable(values.get(RESULT, b"")) or None,
        "tasks": tasks,
        "values": kinds,
    }


def _task(record: bytes, values: Mapping[str, bytes]) -> dict[str, Any]:
    fields = readable(record)
    status = readable(values.get(f"{STATUSES}/{fields.get('id')}", b""))
    taken = ("name", "id", "hostname", "address", "generation")
    return {**{name: fields.get(name) for name in taken}, "state": status.get("state")}


def _print(found: Mapping[str, Any]) -> None:
    result, names = found["result"], ("name", "state", "hostname", "address", "generation")
    rows = [[str(task[name] or "-") for name in names] for task in found["tasks"]]
    screen().show(
        [
            f"service    {found['service']}",
            f"framework  {found['framework_id'] or 'none'}",
            *([] if result is None else [f"result     {result.get('verdict')}: {result.get('reason')}"]),
            Table(("task", "state", "host", "address", "generation"), rows, "no task"),
            ", ".join(f"{kind}: {count}" for kind, count in sorted(found["values"].items())),
        ]
    )


add_group_commands(state, SERVICE_PROGRAM)
