"""Parse and format `service.data`; make shell commands that check SHA-256 digests."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

#: SHA-256 digest in hex.
DIGEST_PATTERN, DIGEST_EXPECTED = "[0-9a-fA-F]{64}", "64 hexadecimal digits, as sha256sum prints them"
#: Exit code of a command whose file does not have its digest (EX_DATAERR of sysexits.h).
WRONG_DIGEST = 65
_MARK = "#sha256="


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of `service.data`."""

    url: str
    #: SHA-256 digest in lower case; empty: none.
    digest: str = ""
    #: Path below the working directory; empty: the file's name.
    path: str = ""
    extract: bool = True
    #: Whether tasks get a link to the agent's file, not a copy.
    link: bool = False


def is_data_list(text: str) -> bool:
    """Return whether the text is a JSON list of records; otherwise it contains URLs."""
    return text.lstrip().startswith("[")


def split_data(text: str) -> tuple[DataFile, ...]:
    """Return the files of `service.data`: comma-separated URLs, or a valid JSON list.

    A URL may have a digest: URL#sha256=DIGEST. Raises ValueError if anything else follows `#`.
    """
    if is_data_list(text):
        records = json.loads(text)
        return tuple(_data_file(**({"url": each} if isinstance(each, str) else each)) for each in records)
    urls = [url.strip() for url in text.split(",") if url.strip()]
    wrong = [url for url in urls if not re.fullmatch(f"[^#]*({_MARK}{DIGEST_PATTERN})?", url)]
    if wrong:
        allowed = f"only `{_MARK}DIGEST` may follow a URL, with a DIGEST of {DIGEST_EXPECTED}"
        raise ValueError(*(f"{allowed}, not {json.dumps(url[:200], ensure_ascii=False)}" for url in wrong))
    return tuple(map(_data_file, urls))


def _data_file(url: str, path: str = "", *, extract: bool = True, link: bool = False) -> DataFile:
    address, _, digest = url.partition(_MARK)
    return DataFile(address, digest.lower(), path, extract, link)


def join_data(files: Iterable[DataFile]) -> str:
    """Return the JSON list that `split_data` reads."""
    records = (
        {"url": f"{file.url}{_MARK if file.digest else ''}{file.digest}", "path": file.path}
        | {"extract": file.extract, "link": file.link}
        for file in files
    )
    return json.dumps(list(records))


def digest_check(file: str, digest: str) -> str:
    """Return shell commands that continue only if the file has this SHA-256 digest.

    `digest` is in lower case. Exit code WRONG_DIGEST is final: the file has another digest. Exit code 1 means that
    the digest could not be computed; another try may succeed.
    """
    name = shlex.quote(file)
    unread = f"printf 'cannot compute the SHA-256 digest of %s: sha256sum failed\\n' {name} >&2; exit 1"
    message = f"printf '%s: wrong SHA-256 digest %s; expected %s\\n' {name} \"${{d%% *}}\" {digest} >&2"
    is_wrong = f'[ "${{d%% *}}" != {digest} ]'
    compute = f"d=$(sha256sum < {name}) || {{ {unread}; }}"
    return f"{compute}; if {is_wrong}; then {message}; exit {WRONG_DIGEST}; fi; "
