"""The login of a service account: a short token of ours, signed, for a long one of DC/OS'.

POST <login_endpoint> {"uid", "token"}  ->  200 {"token"}; then `Authorization: token=<token>`
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import requests

from mesos_client import Token

from .account import Account
from .jwt import claims_of, signed

#: Seconds that our own token is good for: it is used at once (DC/OS SDK: 120, dcos command: 300).
OWN_LIFETIME = 120
#: Seconds before its end in which a token is not used any more, at most half of its life.
MARGIN = 1800.0
#: Seconds for one request.
TIMEOUT = 10.0
_SCHEME = "token="
_MOST_TEXT = 300


class LoginError(OSError):
    """DC/OS gave no token; the text says why. The driver tells it, and tries again later."""


@dataclass(frozen=True, slots=True)
class ServiceLogin:
    """Gets tokens for an account. `verify`: authorities to trust, a file or folder; True: the machine's."""

    account: Account
    verify: bool | str = True
    clock: Callable[[], float] = time.time

    def token(self) -> str:
        """A new token. Raise LoginError."""
        now = int(self.clock())
        own = signed({"uid": self.account.uid, "exp": now + OWN_LIFETIME}, self.account.key)
        answer = self._ask({"uid": self.account.uid, "token": own})
        try:
            return str(answer.json()["token"])
        except (ValueError, KeyError, TypeError):
            raise LoginError(f"{self.account.login_endpoint} answers what is no token") from None

    def is_stale(self, token: str) -> bool:
        """Whether a new one is due: this one ends soon. A token that does not say when is good until it is refused."""
        claims = claims_of(token)
        end, begin = _seconds(claims.get("exp")), _seconds(claims.get("iat"))
        if end is None:
            return False
        life = MARGIN * 2 if begin is None else end - begin
        return self.clock() >= end - min(MARGIN, life / 2)

    def credentials(self) -> Token:
        """For the drivers: renewed before its end, and when Mesos answers 401."""
        return Token(self.token, _SCHEME, self.is_stale)

    def _ask(self, body: dict[str, str]) -> requests.Response:
        where = self.account.login_endpoint
        with requests.Session() as session:
            session.trust_env = False
            try:
                answer = session.post(where, json=body, timeout=TIMEOUT, verify=self.verify, allow_redirects=False)
            except requests.RequestException as error:
                raise LoginError(f"{where} does not answer: {type(error).__name__}") from error
        if answer.status_code != requests.codes.ok:
            raise LoginError(
                f"DC/OS refuses the login of {self.account.uid}: HTTP {answer.status_code}: {answer.text[:_MOST_TEXT]}"
            )
        return answer


def _seconds(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
