"""What a command is: its words, what may follow them, what it asks the scheduler, and how the answer is shown.

From one table of commands both programs make their command lines: `dcos tensorflow`, which has nothing but Python, and
`dcos-tensorflow`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Iterator, Mapping, Sequence

from .client import ServiceClient
from .output import Renderable

#: Name of an argument or option -> what was given: a text, None, a tuple of texts, True, a number.
Params = Mapping[str, Any]
Fetch = Callable[[ServiceClient, Params], Any]
Show = Callable[[Any, Params], Renderable]
Follow = Callable[[ServiceClient, Params], Iterator[Any]]


@dataclass(frozen=True)
class CommandArgument:
    """A word after the command. `kind`: what it names, see kinds.py; empty: anything."""

    name: str
    kind: str = ""
    required: bool = True
    help: str = ""


@dataclass(frozen=True)
class CommandOption:
    """`--name`; its value is given as `key`. `type`: "flag", "text", "texts" (may be repeated) or "number"."""

    name: str
    help: str
    type: str = "text"
    short: str = ""
    metavar: str = ""
    default: Any = None
    #: What its value names, as an argument's.
    kind: str = ""
    #: The numbers that make sense; None: there is no greatest one.
    minimum: int = 1
    maximum: int | None = None

    @property
    def key(self) -> str:
        return self.name.replace("-", "_")


@dataclass(frozen=True)
class Command:
    """One verb."""

    #: `plan status`.
    words: str
    help: str
    fetch: Fetch
    show: Show
    arguments: Sequence[CommandArgument] = ()
    options: Sequence[CommandOption] = ()
    #: Other words for it: those of the DC/OS SDK.
    aliases: Sequence[str] = ()
    #: Goes on for ever, item by item, when `--follow` is given; each is shown by `show_item`.
    follow: Follow | None = None
    show_item: Show | None = None
    #: Asked instead where it is shown to people, by `show`: `fetch` is JSON as the SDK's then.
    fetch_for_humans: Fetch | None = None
    #: On a terminal the answer is drawn again and again, until this gives what is to be said last.
    poll_until: Callable[[ServiceClient], Renderable | None] | None = None
    #: The SDK's command prints JSON; so does `dcos tensorflow`, for the scripts that read it.
    sdk_json: bool = False
    #: What it would do: shown before it is asked whether to do it; and what `fetch` is given besides.
    preview: Callable[[ServiceClient, Params], tuple[Renderable, Params]] | None = None
    #: Asked before it is done, with {the arguments}; empty: it is done at once.
    confirm: str = ""

    @property
    def spellings(self) -> tuple[tuple[str, ...], ...]:
        """Every way to say it; the first is the one that is documented."""
        return tuple(tuple(text.split()) for text in (self.words, *self.aliases))


FOLLOW = CommandOption("follow", "Go on until Ctrl-C.", "flag", short="f")
