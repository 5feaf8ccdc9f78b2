"""Classes that describe commands, and the requests and displays they share.

The one table of commands (`execute.COMMANDS`) becomes the command lines of `dcos tensorflow` and `dcos-tensorflow`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

from .client import ServiceClient, api_path
from .errors import CommandError
from .output import Renderable

#: Name of an argument or option -> its value: a text, None, a tuple of texts, True, a number.
Params = Mapping[str, Any]
Fetch = Callable[[ServiceClient, Params], Any]
FetchAll = Callable[[Sequence[ServiceClient]], Any]
Show = Callable[[Any, Params], Renderable]
Follow = Callable[[ServiceClient, Params], Iterator[Any]]


@dataclass(frozen=True)
class CommandArgument:
    """A positional argument. `kind`: key of `execute.LIST_COMMANDS`; empty: any text."""

    name: str
    kind: str = ""
    required: bool = True
    help: str = ""
    #: Its value in the help's examples.
    example: str = ""
    #: Whether it may be repeated; its value is a tuple then.
    many: bool = False


@dataclass(frozen=True)
class CommandOption:
    """Option `--name`. `type`: "flag", "text", "texts" (may be repeated) or "number"."""

    name: str
    help: str
    type: str = "text"
    short: str = ""
    metavar: str = ""
    default: Any = None
    #: What its value names, see CommandArgument.
    kind: str = ""
    #: Allowed values of a text; empty: any.
    choices: Sequence[str] = ()
    #: Bounds of a number; `maximum` None: unbounded.
    minimum: int = 1
    maximum: int | None = None
    #: Whether `dcos tensorflow`, which has no local runs, refuses it and does not show it.
    local: bool = False

    @property
    def key(self) -> str:
        return self.name.replace("-", "_")


@dataclass(frozen=True)
class Command:
    """One verb, such as `plan status`."""

    words: str
    help: str
    fetch: Fetch
    show: Show
    arguments: Sequence[CommandArgument] = ()
    options: Sequence[CommandOption] = ()
    #: Alternative words: those of the DC/OS SDK.
    aliases: Sequence[str] = ()
    #: Yields items until interrupted when `--follow` is given; each is shown by `show_item`.
    follow: Follow | None = None
    show_item: Show | None = None
    #: Replaces `fetch` where `show` prints the answer; `fetch` returns the JSON of the SDK then.
    fetch_for_humans: Fetch | None = None
    #: On a terminal the answer is redrawn until this function returns the last answer, which `show_last` shows.
    poll_until: Callable[[ServiceClient], Any] | None = None
    show_last: Show | None = None
    #: Exit code after an answer.
    exit_code: Callable[[Any], int] = lambda _answer: 0
    #: Paragraph of the help.
    details: str = ""
    #: Text of the help about exit codes that the root's help does not describe.
    exit_codes: str = ""
    #: If no service runs, shows the stored result of the last local run.
    show_ended: Show | None = None
    #: Replaces `fetch` of a command that asks all services.
    fetch_all: FetchAll | None = None
    #: Whether the SDK's command prints JSON; so does `dcos tensorflow`, for scripts that read it.
    sdk_json: bool = False
    #: Returns the effects to show before the confirmation, and additional parameters of `fetch`.
    preview: Callable[[ServiceClient, Params], tuple[Renderable, Params]] | None = None
    #: Question before the command runs, with {the arguments}; empty: it runs without one.
    confirm: str = ""
    #: Arguments in the help's examples; empty: derived from `arguments`.
    examples: Sequence[str] = ()

    @property
    def spellings(self) -> tuple[tuple[str, ...], ...]:
        """All words that name it; the first ones are documented."""
        return tuple(tuple(text.split()) for text in (self.words, *self.aliases))

    def example_lines(self) -> list[str]:
        """Command lines for the help, without the program's name."""
        required = [argument.example for argument in self.arguments if argument.required]
        every = [argument.example for argument in self.arguments]
        lines = self.examples or dict.fromkeys((" ".join(required), " ".join(every)))
        return [f"{self.words} {line}".rstrip() for line in lines]


#: Same as the option `--name`.
SERVICE = CommandArgument("service", required=False, help="Name of the service.", example="mnist")


def get(path: str, **query: str) -> Fetch:
    """Fetch `/v1/PATH` as JSON; `{plan}` is that argument, omitted without a value."""

    def fetch(service: ServiceClient, params: Params) -> Any:
        parts = (params[part[1:-1]] if part.startswith("{") else part for part in path.split("/"))
        return service.get(api_path(*filter(None, parts)), (), **query)

    return fetch


def show_names(names: Sequence[str], _params: Params) -> Renderable:
    """One name a line."""
    return names


def show_json(document: Any, _params: Params) -> Renderable:
    """A document as indented JSON."""
    return (json.dumps(document, indent=2),)


def show_message(answer: Any, _params: Params) -> Renderable:
    """The scheduler's answer to a command."""
    return (str(answer.get("message", "done")),)


def merge_options(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested options as DC/OS does; other values of `above` win."""
    merged = dict(below)
    for name, value in above.items():
        old = merged.get(name)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[name] = merge_options(old, value) if both else value  # type: ignore[arg-type]
    return merged


def relative_job_url(options: Mapping[str, Any]) -> str:
    """`service.job_url` if it is a relative path, which only local runs can use."""
    section = options.get("service")
    url = section.get("job_url") if isinstance(section, Mapping) else None
    return url if isinstance(url, str) and "://" not in url and not url.startswith("/") else ""


def read_document(file: str, label: str = "") -> Any:
    """Read a JSON object; `-`: from standard input. Raise CommandError."""
    name = f"{label}`-` (standard input)" if file == "-" else f"{label}{file}"
    try:
        document = json.loads(sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{name}: invalid UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise CommandError(f"{name}: nested too deeply") from error
    except ValueError as error:
        raise CommandError(f"{name}: invalid JSON: {error}") from error
    if not isinstance(document, dict):
        raise CommandError(f"{name}: must be a JSON object")
    return document


def with_settings(document: Mapping[str, Any], settings: Iterable[str]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Apply each SECTION.OPTION=VALUE; return the options, and (setting, problem).

    VALUE is JSON, else a text. A path may name an environment variable: service.environment.LR=0.1.
    """
    changed, wrong = json.loads(json.dumps(document)), []
    for setting in settings:
        path, equals, text = setting.partition("=")
        *sections, name = path.split(".")
        if not (equals and sections and name and all(sections)):
            wrong.append((f"--set {setting}", "expected SECTION.OPTION=VALUE, such as worker.count=4"))
            continue
        level = changed
        for section in sections:
            below = level.setdefault(section, {})
            if section == _ENVIRONMENT and isinstance(below, list):  # the form of Cosmos
                below = level[section] = {entry["name"]: entry["value"] for entry in below}
            if not isinstance(below, dict):
                wrong.append((f"--set {setting}", f"`{section}` is not an object in the options file"))
                break
            level = below
        else:
            level[name] = text if sections[-1] == _ENVIRONMENT else _json_or_text(text)
    return changed, wrong


_ENVIRONMENT = "environment"


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
