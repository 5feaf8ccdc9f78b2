"""Stand-in for the login and secret store of DC/OS, with signatures by PyJWT."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from kit.http_server import HttpServer, QuietHandler

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
ISSUER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
UID = "dev_tensorflow"
_JSON = "application/json"


def pem(kind: str = "PKCS8") -> str:
    formats = {"PKCS8": serialization.PrivateFormat.PKCS8, "PKCS1": serialization.PrivateFormat.TraditionalOpenSSL}
    data = KEY.private_bytes(serialization.Encoding.PEM, formats[kind], serialization.NoEncryption())
    return data.decode()


class Dcos:
    """Stand-in server; `secrets`: path -> (type, body), `lifetime`: token's seconds."""

    def __init__(self) -> None:
        self.secrets: dict[str, tuple[str, bytes]] = {}
        self.lifetime = 3600.0
        self.logins: list[dict[str, Any]] = []
        self.revoked: set[str] = set()
        self.down = False
        dcos = self

        class Handler(QuietHandler):
            def respond(self) -> None:
                if self.command == "POST":
                    body = json.loads(self.body())
                    dcos.logins.append(body)
                    self.answer(*dcos.login(self.path, body), Content_Type=_JSON)
                else:
                    code, content, kind = dcos.secret(self.path, self.headers.get("Authorization", ""))
                    self.answer(code, content, Content_Type=kind)

        server = HttpServer(Handler)
        self.address, self.close = server.url, server.close

    def credential(self, **changes: str) -> str:
        """The credential, in the form that DC/OS passes to the scheduler."""
        endpoint = f"{self.address}/acs/api/v1/auth/login"
        whole = {"scheme": "RS256", "uid": UID, "private_key": pem(), "login_endpoint": endpoint, **changes}
        return json.dumps(whole)

    def login(self, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        if self.down:
            return 502, b"bad gateway"
        try:
            claims = jwt.decode(body["token"], KEY.public_key(), algorithms=["RS256"], options={"require": ["exp"]})
        except jwt.InvalidTokenError:
            claims = {}
        if path != "/acs/api/v1/auth/login" or body["uid"] != UID or claims.get("uid") != UID:
            return 401, b'{"title": "Unauthorized", "description": "Invalid credentials"}'
        now = time.time()
        about = {"uid": UID, "iat": now, "exp": now + self.lifetime, "number": len(self.logins)}
        return 200, json.dumps({"token": jwt.encode(about, ISSUER, "RS256")}).encode()

    def is_known(self, authorization: str) -> bool:
        """Whether a header has a token of this server that is not revoked."""
        token = authorization.removeprefix("token=")
        try:
            jwt.decode(token, ISSUER.public_key(), algorithms=["RS256"], options={"verify_iat": False})
        except jwt.InvalidTokenError:
            return False
        return authorization.startswith("token=") and token not in self.revoked

    def secret(self, path: str, authorization: str) -> tuple[int, bytes, str]:
        if self.down:
            return 503, b"sealed", _JSON
        if not self.is_known(authorization):
            return 401, b"unauthorized", _JSON
        name = path.removeprefix("/secrets/v1/secret/default/")
        if name.startswith("forbidden/"):
            return 403, b"access denied", _JSON
        if name not in self.secrets:
            return 404, b'{"code": "ERR_SECRET_NOT_FOUND"}', _JSON
        kind, body = self.secrets[name]
        return 200, body, kind
