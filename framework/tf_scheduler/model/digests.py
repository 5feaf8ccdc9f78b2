"""SHA-256 digests of fetched files: form in options, check in a shell."""

from __future__ import annotations

import json
import re
import shlex

#: SHA-256 digest in hex.
DIGEST_PATTERN, DIGEST_EXPECTED = "[0-9a-fA-F]{64}", "64 hexadecimal digits, as sha256sum prints them"
#: Exit code of a command whose file does not have its digest (EX_DATAERR of sysexits.h).
WRONG_DIGEST = 65
_MARK = "#sha256="


def split_data(text: str) -> tuple[tuple[str, str], ...]:
    """Split comma-separated URLs, each with an optional digest: URL#sha256=DIGEST.

    Digests are in lower case, and empty without one. Raises ValueError.
    """
    urls = [url.strip() for url in text.split(",") if url.strip()]
    wrong = [url for url in urls if not re.fullmatch(f"[^#]*({_MARK}{DIGEST_PATTERN})?", url)]
    if wrong:
        allowed = f"only `{_MARK}DIGEST` may follow a URL, with a DIGEST of {DIGEST_EXPECTED}"
        raise ValueError(*(f"{allowed}, not {json.dumps(url[:200], ensure_ascii=False)}" for url in wrong))
    entries = (url.partition(_MARK) for url in urls)
    return tuple((url, digest.lower()) for url, _, digest in entries)


def digest_check(file: str, digest: str) -> str:
    """Return shell commands that go on only if the file has the digest.

    `digest` is in lower case. Only one that was read and differs is final; after exit code 1 another try may succeed.
    """
    name = shlex.quote(file)
    unread = f"printf 'cannot compute the SHA-256 digest of %s: sha256sum failed\\n' {name} >&2; exit 1"
    message = f"printf '%s: wrong SHA-256 digest %s; expected %s\\n' {name} \"${{d%% *}}\" {digest} >&2"
    is_wrong = f'[ "${{d%% *}}" != {digest} ]'
    read = f"d=$(sha256sum < {name}) || {{ {unread}; }}"
    return f"{read}; if {is_wrong}; then {message}; exit {WRONG_DIGEST}; fi; "
