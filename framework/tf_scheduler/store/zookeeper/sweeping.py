"""Removes the nodes that nobody can look at any more."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from kazoo.exceptions import KazooException

from tf_scheduler.store.interface import StoreError

from . import layout
from .commit import Tree
from .layout import Head
from .reading import Seen
from .session import Deadline, Session

log = logging.getLogger(__name__)

_TIMEOUT = 5.0  # seconds


def sweep(tree: Tree, session: Session, head: Head) -> None:
    """Remove what `head`, which is stored, leaves dead. What cannot be removed now is after the next snapshot."""
    try:
        for path in list(_dead(tree, session, head, Deadline(_TIMEOUT))):
            # Nobody has to wait for it, nor hear of its failure.
            session.send(partial(_delete, path))
    except (KazooException, StoreError):
        log.debug("%s was not swept", tree.describe(tree.path), exc_info=True)


def remove(tree: Tree, session: Session, seen: Seen, ours: Sequence[str]) -> None:
    """Remove the nodes of a service that is no more, `ours` among them: the leader's own.

    Nothing is removed when somebody has begun anew since; what has to stay for want of rights is empty.
    """
    deadline = Deadline(_TIMEOUT)
    try:
        if seen.head is not None:
            session.ask(lambda client: client.delete_async(tree.head, seen.version), deadline)
        for name in _children(session, tree.path, deadline):
            if name.startswith(layout.state_folder("")):
                _remove_folder(session, f"{tree.path}/{name}", deadline)
        for path in (*ours, tree.path):
            session.ask(partial(_delete, path), deadline)
    except (KazooException, StoreError) as error:
        log.info("%s is empty, and stays: %r", tree.describe(tree.path), error)


def _remove_folder(session: Session, path: str, deadline: Deadline) -> None:
    for name in _children(session, path, deadline):
        session.ask(partial(_delete, f"{path}/{name}"), deadline)
    session.ask(partial(_delete, path), deadline)


def _dead(tree: Tree, session: Session, head: Head, deadline: Deadline) -> Iterator[str]:
    current = tree.folder(head)
    for name in _children(session, current, deadline):
        if layout.is_dead(name, head):
            yield f"{current}/{name}"
    # A first change that was never completed, or a tree from before somebody removed everything.
    for name in _children(session, tree.path, deadline):
        folder = f"{tree.path}/{name}"
        if name.startswith(layout.state_folder("")) and folder != current:
            yield from (f"{folder}/{child}" for child in _children(session, folder, deadline))
            yield folder


def _children(session: Session, path: str, deadline: Deadline) -> list[str]:
    names: list[str] = session.ask(lambda client: client.get_children_async(path), deadline)
    return names


def _delete(path: str, client: Any) -> Any:
    return client.delete_async(path)
