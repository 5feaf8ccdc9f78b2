"""Read options files, merge their content, and apply the settings of `--set`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Iterable, Mapping

from .errors import CommandError


def merge_options(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested objects as DC/OS does; `above` replaces all other values."""
    merged = dict(below)
    for name, value in above.items():
        old = merged.get(name)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[name] = merge_options(old, value) if both else value  # type: ignore[arg-type]
    return merged


def relative_job_url(options: Mapping[str, Any]) -> str:
    """Return `service.job_url` if it is a relative path (for local runs), else empty."""
    section = options.get("service")
    url = section.get("job_url") if isinstance(section, Mapping) else None
    return url if isinstance(url, str) and "://" not in url and not url.startswith("/") else ""


def read_document(file: str, label: str = "") -> Any:
    """Read a JSON object from a file; `-`: from standard input. Raise CommandError."""
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
    """Apply each SECTION.OPTION=VALUE; return options and (setting, problem) pairs.

    A VALUE that is not JSON is a text. A path may name an environment variable: service.environment.LR=0.1.
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
