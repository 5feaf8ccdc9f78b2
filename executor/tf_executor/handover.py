"""Gets the task's secrets from the scheduler, before anything of the task runs.

    POST <url> {"task_id", "token", "nonce"}  ->  200 {"secrets": [{"env", "file", "value", "reload"}]}, base64

The token came with the task, so agents and masters have seen it: it is good once. `nonce` is ours and never told to
anybody else; with it the same question may be asked again: when the answer got lost and, for the values that are to be
reloaded, while the program runs.
"""

from __future__ import annotations

import base64
import binascii
import json
import ssl
import time
import urllib.error
import urllib.request
from typing import Any, Callable

from tf_executor.claims import Claim, HandoverError, Secret

#: Seconds that the scheduler may be away, as while another one takes over.
PATIENCE = 120.0
#: Seconds for one answer: the scheduler asks others in turn.
TIMEOUT = 30.0
#: Seconds between two attempts, the first and the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0
#: Answers that another attempt does not change: the token is not good, or the source has no such value.
FINAL = (403, 424)
_MOST_BYTES = 16 << 20
_MOST_TEXT = 500


def fetch(
    claim: Claim,
    patience: float = PATIENCE,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], Any] = time.sleep,
) -> list[Secret]:
    """The secrets. Raise HandoverError at once for a refusal, and when nobody has answered for `patience` seconds."""
    end, pause = clock() + patience, FIRST_PAUSE
    opener = _opener(claim)
    while True:
        try:
            return _ask(opener, claim)
        except urllib.error.HTTPError as error:
            trouble = _told(error)
            if error.code in FINAL:
                raise HandoverError(trouble) from None
        except (OSError, ValueError) as error:
            if isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError):
                raise HandoverError(f"{claim.url} is not to be trusted: {error}") from None
            trouble = f"{claim.url} does not answer: {getattr(error, 'reason', error)}"
        if clock() + pause > end:
            raise HandoverError(f"{trouble} (tried for {patience:g} s)")
        wait(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def _opener(claim: Claim) -> urllib.request.OpenerDirector:
    try:
        context = ssl.create_default_context(cadata=claim.authorities or None)
    except ValueError as error:  # ssl.SSLError is one
        raise HandoverError(f"the authorities for {claim.url} cannot be read: {error}") from None
    handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context), _NoRedirect())
    return urllib.request.build_opener(*handlers)


def _ask(opener: urllib.request.OpenerDirector, claim: Claim) -> list[Secret]:
    if not claim.url.startswith(("http://", "https://")):
        raise HandoverError(f"{claim.url} is no address of the scheduler's API")
    request = urllib.request.Request(claim.url, claim.body, {"Content-Type": "application/json"})  # noqa: S310
    with opener.open(request, timeout=TIMEOUT) as answer:
        return decode(answer.read(_MOST_BYTES))


def decode(body: bytes) -> list[Secret]:
    """The secrets of an answer. Raise ValueError that quotes nothing of it."""
    try:
        return [
            Secret(
                str(item["env"]),
                str(item["file"]),
                base64.b64decode(item["value"], validate=True),
                bool(item.get("reload")),
            )
            for item in json.loads(body)["secrets"]
        ]
    except (AttributeError, KeyError, TypeError, binascii.Error, ValueError):
        raise ValueError("the answer is not one of the scheduler's") from None


def _told(error: urllib.error.HTTPError) -> str:
    with error:
        text = error.read(4 * _MOST_TEXT).decode("utf-8", "replace").strip()
    return f"the scheduler answers {error.code}: {text[:_MOST_TEXT]}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A token is for one address."""

    def redirect_request(self, *_: Any) -> None:
        return None
