"""Log in to DC/OS as a service account: a short token signed with the account's key, exchanged for a long one.

POST <login_endpoint> {"uid", "token"}  ->  200 {"token"}; then `Authorization: token=<token>`
PyJWT and cryptography, the extra `dcos`, are imported only when a credential is configured.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests

from mesos_client.credentials import TokenCredentials
from tf_scheduler.errors import SchedulerError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

#: Variable with the credential, or with the path of a file that holds it (DC/OS SDK: both).
VARIABLE = "DCOS_SERVICE_ACCOUNT_CREDENTIAL"
#: Seconds that the token signed here is valid: it is used immediately (DC/OS SDK: 120, dcos command: 300).
LOGIN_TOKEN_SECONDS = 120
#: Seconds before its end in which a token is not used any more, at most half of its life.
RENEWAL_SECONDS = 1800.0
#: Seconds for one request.
TIMEOUT = 10.0
_ALGORITHM = "RS256"
_SCHEME = "token="
_MAX_TEXT = 300


class AccountError(SchedulerError):
    """The credential cannot be used. The text quotes nothing of it."""


class MissingExtraError(AccountError):
    """PyJWT or cryptography is not installed."""

    def __init__(self) -> None:
        super().__init__("service account login needs the extra `dcos`: use the scheduler image")


class LoginError(SchedulerError, OSError):
    """DC/OS gave no token; the text says why. The driver logs it and retries later."""

    kind = "login_failed"
    http_status = 503


@dataclass(frozen=True, slots=True)
class Account:
    """A service account's credential: its id, its private key, and where to log in."""

    uid: str
    key: RSAPrivateKey = field(repr=False)
    login_endpoint: str

    @property
    def cluster(self) -> str:
        """Base address of the cluster's services."""
        parts = urlsplit(self.login_endpoint)
        return f"{parts.scheme}://{parts.netloc}"


def account_of(environment: Mapping[str, str]) -> Account | None:
    """Return the account of the scheduler's environment; None: it has none. Raise AccountError."""
    value = environment.get(VARIABLE, "").strip()
    if not value:
        return None
    try:
        text = value if value.startswith("{") else Path(value).read_text()
    except (OSError, ValueError) as error:
        raise AccountError(f"{VARIABLE} names a file that cannot be read: {type(error).__name__}") from None
    return parse_account(text)


def parse_account(text: str) -> Account:
    """Parse the JSON that `dcos security secrets create-sa-secret` stores. Raise AccountError."""
    try:
        document: dict[str, Any] = json.loads(text)
        uid, pem, endpoint = (str(document[name]) for name in ("uid", "private_key", "login_endpoint"))
    except (ValueError, KeyError, TypeError, RecursionError):
        fields = "a JSON object with uid, private_key, login_endpoint and scheme"
        raise AccountError(
            f"{VARIABLE} must be {fields}, as `dcos security secrets create-sa-secret` makes it"
        ) from None
    if document.get("scheme", _ALGORITHM) != _ALGORITHM:
        raise AccountError(f"{VARIABLE}: the scheme must be {_ALGORITHM}")
    if urlsplit(endpoint).scheme not in ("http", "https") or not urlsplit(endpoint).netloc:
        raise AccountError(
            f"{VARIABLE}: login_endpoint must be an address such as https://leader.mesos/acs/api/v1/auth/login"
        )
    return Account(uid, _load_private_key(pem), endpoint)


def _load_private_key(pem: str) -> RSAPrivateKey:
    """Load PKCS#8 (`BEGIN PRIVATE KEY`, what DC/OS makes) or PKCS#1. Raise AccountError."""
    try:
        import jwt  # noqa: F401 - to report it here, not at the first login
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError:
        raise MissingExtraError from None
    try:
        key = load_pem_private_key(pem.replace("\\n", "\n").encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, RSAPrivateKey):
        raise AccountError(f"{VARIABLE}: private_key must be an RSA key in PEM, undamaged and without a password")
    return key


def claims_of(token: str) -> Mapping[str, Any]:
    """Return what a token says, without verifying it; empty for what is not a token."""
    import jwt

    try:
        return jwt.decode(token, options={"verify_signature": False})
    except jwt.InvalidTokenError:
        return {}


@dataclass(frozen=True, slots=True)
class ServiceLogin:
    """Gets tokens for an account. `verify`: authorities to trust, a file or folder; True: the machine's."""

    account: Account
    verify: bool | str = True
    clock: Callable[[], float] = time.time

    def token(self) -> str:
        """Return a new token. Raise LoginError."""
        import jwt

        claims = {"uid": self.account.uid, "exp": int(self.clock()) + LOGIN_TOKEN_SECONDS}
        answer = self._ask({"uid": self.account.uid, "token": jwt.encode(claims, self.account.key, _ALGORITHM)})
        try:
            return str(answer.json()["token"])
        except (ValueError, KeyError, TypeError):
            raise LoginError(f"{self.account.login_endpoint} did not answer with a token") from None

    def is_stale(self, token: str) -> bool:
        """Whether a new one is due: this one ends soon. A token that does not say when is good until it is refused."""
        claims = claims_of(token)
        end, begin = _number(claims.get("exp")), _number(claims.get("iat"))
        if end is None:
            return False
        life = RENEWAL_SECONDS * 2 if begin is None else end - begin
        return self.clock() >= end - min(RENEWAL_SECONDS, life / 2)

    def credentials(self) -> TokenCredentials:
        """Credentials for the drivers: renewed before their end, and when Mesos answers 401."""
        return TokenCredentials(self.token, _SCHEME, self.is_stale)

    def _ask(self, body: dict[str, str]) -> requests.Response:
        endpoint = self.account.login_endpoint
        with requests.Session() as session:
            session.trust_env = False
            try:
                answer = session.post(endpoint, json=body, timeout=TIMEOUT, verify=self.verify, allow_redirects=False)
            except requests.RequestException as error:
                raise LoginError(f"{endpoint} does not answer: {type(error).__name__}") from error
        if answer.status_code != requests.codes.ok:
            raise LoginError(
                f"DC/OS refuses the login of {self.account.uid}: HTTP {answer.status_code}: {answer.text[:_MAX_TEXT]}"
            )
        return answer


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
