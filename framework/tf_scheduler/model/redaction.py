"""Redact text that looks like a secret in URLs, commands, headers and JSON.

Patterns cannot match every secret: values that must never be shown belong in the option `secrets`. Text may be long and
untrusted, so each pattern takes linear time. Either its repetitions have a maximum length, or a match cannot begin
inside text that an earlier attempt has scanned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

MASK = "********"

#: Names of variables with secrets. Over-matching is intended.
_VARIABLE = re.compile(r"KEY|TOKEN|SECRET|PASS|PWD|CREDENTIAL|AUTHORIZATION|(?:^|_)AUTH(?:$|_)", re.IGNORECASE)
#: Names of parameters and fields: only the end counts, because `max_tokens` and `key_file` are not secrets.
_NAME = re.compile(
    r"(?:password|passwd|passphrase|pass|pwd|secret|token|apikey|credentials?|signature|authorization"
    r"|(?:^|[^a-z])(?:key|auth|sig)|(?-i:[a-z](?:Key|Auth)))[_-]?\d*$",
    re.IGNORECASE,
)
#: A word of a command: quoted text with adjacent text, or up to the next separator.
_QUOTED = r"(?:\"(?:[^\"\\]|\\.?)*\"?|'[^']*'?)"
_BARE = r"(?!,\s{0,9}\w{1,9}://)[^\s&\"';|]"
_WORD = re.compile(rf"{_QUOTED}(?:{_QUOTED}|{_BARE})*|(?:{_BARE})+")

#: A header with credentials, up to the end of line, quote or comma; its scheme stays visible.
_HEADER = re.compile(
    r"(\b(?:authorization|(?:set-)?cookie|(?:x-[\w-]{0,40}|private-|job-|deploy-|api-)(?:token|key|secret|auth))"
    r"\\?[\"']?:\s*\\?[\"']?(?:(?:basic|bearer|digest|negotiate|token)\s+)?)[^\s\"'](?:(?!,\s)[^\"'\r\n])*",
    re.IGNORECASE,
)
#: User and password before a host. The password ends at the last @ before the path; with a slash in it, at the first.
_ADDRESS = re.compile(r"://([^/:@?#\s\"']*)(:(?!\d{1,5}[/,\s]))?((?<=:)(?:[^/\s\"']*|[^@\s\"']{0,128})|(?<!:))@")
#: Key before a value: in a URL or command, in a command, in JSON or in JSON inside a string.
_PARAMETER = re.compile(r"(?<![\w.-])(?P<name>[\w.-]{1,128})=")
_FLAG = re.compile(r"(?<!\S)--?(?P<name>[\w-]{1,128})[ \t]+(?!-)")
_FIELD = re.compile(r"(?P<quote>\\{0,7}[\"'])(?P<name>[\w.-]{1,128})(?P=quote)\s*:\s*")
_NUMBER = re.compile(r"[^\s,}\]\"'\\{\[]+")
_QUOTES = re.compile(r"\\+[\"']?|[\"']")
#: User and password as in curl's -u and --user.
_USER = re.compile(r"(?<!\S)((?:-u[ \t]*|-U[ \t]*|--(?:proxy-)?user[= \t][ \t]*)[\"']?[^\s:\"']{1,256}:)[^\s\"']+")
#: A longer user name is a token.
_LONG_USER = 20


def redact_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Redact variables with secret names, and secrets in the values of the others."""
    return {name: MASK if _VARIABLE.search(name) else redact_text(text) for name, text in variables.items()}


def redact_text(text: str) -> str:
    """Redact everything in the text that looks like a password.

    Covers URL credentials (`https://TOKEN@host`, `scheme://user:PASSWORD@host`), headers such as `Authorization:`, and
    values of keys such as `password`, `api_key` or `sig` in URLs, commands and JSON.
    """
    for mark, hide in _STEPS:
        if mark in text:
            text = hide(text)
    return text


def _address(match: re.Match[str]) -> str:
    user, colon, password = match[1], match[2] or "", match[3]
    web = match.string[max(0, match.start() - 5) : match.start()].lower().endswith(("http", "https"))
    is_token = web and (not password or password == "x-oauth-basic" or len(user) > _LONG_USER)  # noqa: S105
    displayed = MASK if user and is_token else user
    return f"://{displayed}{colon}{MASK if password else ''}@"


def _named(text: str, key: re.Pattern[str], value: Callable[[str, re.Match[str]], tuple[int, str]]) -> str:
    """Redact values of secret keys; `value` returns a value's end and replacement."""
    parts, done, place = [], 0, 0
    while match := key.search(text, place):
        place = match.end()
        if _NAME.search(match["name"]):
            end, masked = value(text, match)
            if end > place:
                parts += [text[done:place], masked]
                done = place = end
    return "".join([*parts, text[done:]])


def _word(text: str, key: re.Match[str]) -> tuple[int, str]:
    match = _WORD.match(text, key.end())
    return (match.end() if match else key.end()), MASK


def _content(text: str, key: re.Match[str]) -> tuple[int, str]:
    quote = key["quote"]
    if text.startswith(quote, key.end()):
        return _closed(text, key.end() + len(quote), quote), f"{quote}{MASK}{quote}"
    other = _NUMBER.match(text, key.end())
    return (other.end() if other else key.end()), f"{quote}{MASK}{quote}"


def _closed(text: str, start: int, quote: str) -> int:
    """Return the position after the closing quote.

    If a quote has n backslashes, quotes nested in it have 2n+1.
    """
    depth = len(quote) - 1
    for match in _QUOTES.finditer(text, start):
        if match[0].endswith(quote[-1]) and (len(match[0]) - 1) % (2 * depth + 2) == depth:
            return match.end()
    return len(text)


#: Marker that a text must contain -> redaction, in order.
_STEPS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("://", lambda text: _ADDRESS.sub(_address, text)),
    (":", lambda text: _HEADER.sub(rf"\g<1>{MASK}", text)),
    (":", lambda text: _named(text, _FIELD, _content)),
    (":", lambda text: _USER.sub(rf"\g<1>{MASK}", text)),
    ("-", lambda text: _named(text, _FLAG, _word)),
    ("=", lambda text: _named(text, _PARAMETER, _word)),
)
