"""The four files of package/, read strictly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tf_scheduler.errors import Problem

PACKAGE, CONFIG, RESOURCE, TEMPLATE = "package.json", "config.json", "resource.json", "marathon.json.mustache"
FILES = (PACKAGE, CONFIG, RESOURCE, TEMPLATE)


def home(installed: Path, checkout: Path) -> Path:
    """The folder of the sources; the examples lie beside it. A wheel brought both to the folder `installed`."""
    carried = installed / "dcos_sources" / "package"
    return carried if carried.is_dir() else checkout / "package"


#: Of this installation.
HOME = home(*Path(__file__).resolve().parents[2:4])


@dataclass(frozen=True, slots=True)
class Sources:
    """What could be read, and what is wrong with the rest. A JSON file that is not an object is empty here."""

    package: dict[str, Any]
    config: dict[str, Any]
    resource: dict[str, Any]
    template: str
    problems: tuple[Problem, ...] = ()


def read(folder: Path = HOME) -> Sources:
    """Never raises: a file that is missing or broken is a problem among others."""
    problems: list[Problem] = []
    texts = {name: _text(folder / name, problems) for name in FILES}
    package, config, resource = (_document(name, texts[name], problems) for name in (PACKAGE, CONFIG, RESOURCE))
    problems += _others(folder)
    return Sources(package, config, resource, texts[TEMPLATE], tuple(problems))


def _text(path: Path, problems: list[Problem]) -> str:
    try:
        return path.read_bytes().decode("ascii")
    except OSError as error:
        problems.append(Problem(path.name, f"cannot be read: {error.strerror}"))
    except UnicodeDecodeError as error:
        line = path.read_bytes().count(b"\n", 0, error.start) + 1
        problems.append(Problem(path.name, f"line {line}: only ASCII is allowed in a Universe package"))
    return ""


def _document(name: str, text: str, problems: list[Problem]) -> dict[str, Any]:
    repeated: list[str] = []
    try:
        document = json.loads(text or "{}", object_pairs_hook=lambda pairs: _object(pairs, repeated))
    except json.JSONDecodeError as error:
        problems.append(Problem(name, f"line {error.lineno} column {error.colno}: {error.msg}"))
        return {}
    except (ValueError, RecursionError) as error:
        problems.append(Problem(name, f"is not JSON that we accept: {error}"))
        return {}
    problems += [Problem(name, f"{key!r} is given more than once in one object") for key in repeated]
    if "\\u" in json.dumps(document):
        problems.append(Problem(name, "only ASCII is allowed in a Universe package, also as \\u escapes"))
    if not isinstance(document, dict):
        problems.append(Problem(name, "must be a JSON object"))
        return {}
    return document


def _object(pairs: list[tuple[str, Any]], repeated: list[str]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    repeated += sorted({name for name in names if names.count(name) > 1})
    return dict(pairs)


def _others(folder: Path) -> Iterator[Problem]:
    """command.json is an error from packaging version 4.0 on; pictures and texts may lie beside the four files."""
    if (folder / "command.json").exists():
        yield Problem("command.json", "is not allowed from packaging version 4.0 on; use `cli` in resource.json")
