"""Who waits has a line of its own, and the lines take turns: one who asks a thousand times waits behind itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """Lines within lines. A path names one: `("10.0.0.1", "alice")` is that of alice among those of her address.

    Between two turns of a line, each other beside it that has somebody waiting has one.
    """

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        #: Their next turn comes in this order.
        self._lines: dict[Hashable, Turns[T]] = {}

    def __bool__(self) -> bool:
        return bool(self._items or self._lines)

    def put(self, path: Sequence[Hashable], item: T) -> None:
        """At the end of that line."""
        if path:
            self._lines.setdefault(path[0], Turns()).put(path[1:], item)
        else:
            self._items.append(item)

    def take(self) -> T:
        """Whose turn it is. Raise LookupError when nobody waits."""
        if self._items:
            return self._items.popleft()
        if not self._lines:
            raise LookupError("nobody waits")
        name = next(iter(self._lines))
        line = self._lines.pop(name)
        item = line.take()
        if line:
            self._lines[name] = line
        return item
