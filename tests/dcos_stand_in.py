"""DC/OS' login and secret store, as its documentation describes them; signatures are checked by PyJWT."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
ISSUER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
UID = "dev_tensorflow"


def pem(kind: str = "PKCS8") -> str:
    formats = {"PKCS8": serialization.PrivateFormat.PKCS8, "PKCS1": serialization.PrivateFormat.TraditionalOpenSSL}
    data = KEY.private_bytes(serialization.Encoding.PEM, formats[kind], serialization.NoEncryption())
    return data.decode()


class Dcos:
    """`secrets`: path -> (content type, body). `lifetime`: seconds of the tokens that it gives."""

    def __init__(self) -> None:
        self.secrets: dict[str, tuple[str, bytes]] = {}
        self.lifetime = 3600.0
        self.logins: list[dict[str, Any]] = []
        self.revoked: set[str] = set()
        self.down = False
        dcos = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                dcos.logins.append(body)
                self._answer(*dcos.login(self.path, body))

            def do_GET(self) -> None:
                self._answer(*dcos.secret(self.path, self.headers.get("Authorization", "")))

            def _answer(self, code: int, body: bytes, kind: str = "application/json") -> None:
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def credential(self, **changes: str) -> str:
        """As DC/OS hands it to the scheduler."""
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
        """Whether a header holds a token that we gave and have not revoked."""
        token = authorization.removeprefix("token=")
        try:
            jwt.decode(token, ISSUER.public_key(), algorithms=["RS256"], options={"verify_iat": False})
        except jwt.InvalidTokenError:
            return False
        return authorization.startswith("token=") and token not in self.revoked

    def secret(self, path: str, authorization: str) -> tuple[int, bytes] | tuple[int, bytes, str]:
        if self.down:
            return 503, b"sealed"
        if not self.is_known(authorization):
            return 401, b"unauthorized"
        name = path.removeprefix("/secrets/v1/secret/default/")
        if name.startswith("forbidden/"):
            return 403, b"access denied"
        if name not in self.secrets:
            return 404, b'{"code": "ERR_SECRET_NOT_FOUND"}'
        kind, body = self.secrets[name]
        return 200, body, kind

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
