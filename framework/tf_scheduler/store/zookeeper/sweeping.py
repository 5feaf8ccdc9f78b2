"""Removes the nodes that nobody can look at any more."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import Any

from kazoo.exceptions import KazooException

from tf_scheduler.store.interface import StoreError

from . import layout
from .commit import Tree
from .layout import Head
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
