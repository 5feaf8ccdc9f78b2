"""An S3 server of moto in a process of its own, which checks keys."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import boto3

from kit.http_server import HttpServer, QuietHandler
from kit.waiting import wait_until
from mesos_local.host import free_ports

BUCKET = "bucket"
#: Calls that create the user, its policy, its key and the bucket; moto checks the signatures of all later ones.
_UNCHECKED_CALLS = "4"
_POLICY = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}


@dataclass(frozen=True)
class S3Server:
    """A running server, and the only key that may use its bucket."""

    address: str
    key: str
    secret: str
    client: Any

    def names(self, prefix: str = "") -> list[str]:
        """Return the names of all objects in the bucket."""
        listed = self.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix)
        return [item["Key"] for item in listed.get("Contents", ())]

    def read(self, name: str) -> bytes:
        data: bytes = self.client.get_object(Bucket=BUCKET, Key=name)["Body"].read()
        return data


@contextmanager
def run_s3_server() -> Iterator[S3Server]:
    """Start a server with an empty bucket on loopback."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(
        command,
        env={**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": _UNCHECKED_CALLS},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with wait_until(lambda: socket.create_connection(("127.0.0.1", port), 1), ignore=OSError):
            pass
        yield _with_user(f"http://127.0.0.1:{port}")
    finally:
        process.kill()
        process.wait()


class OutageProxy(HttpServer):
    """Forwards requests to a server; answers 503 while `is_out`."""

    def __init__(self, address: str) -> None:
        self.is_out = True
        proxy = self

        class Handler(QuietHandler):
            #: Clients of S3 wait for `100 Continue`.
            protocol_version = "HTTP/1.1"

            def respond(self) -> None:
                if proxy.is_out:
                    self.answer(503, b"")
                    return
                server = http.client.HTTPConnection(address.partition("://")[2])
                server.request(self.command, self.path, self.body(), dict(self.headers.items()))
                answer = server.getresponse()
                body = answer.read()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name not in ("Connection", "Transfer-Encoding"):
                        self.send_header(name, value)
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = respond  # noqa: N815 - their names there

        super().__init__(Handler)


def _with_user(address: str) -> S3Server:
    anybody = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}  # not checked yet
    shared = {"endpoint_url": address, "region_name": "us-east-1"}
    users, buckets = (boto3.client(name, **shared, **anybody) for name in ("iam", "s3"))
    users.create_user(UserName="trainer")
    users.put_user_policy(UserName="trainer", PolicyName="all", PolicyDocument=json.dumps(_POLICY))
    key = users.create_access_key(UserName="trainer")["AccessKey"]
    buckets.create_bucket(Bucket=BUCKET)
    name, secret = key["AccessKeyId"], key["SecretAccessKey"]
    client = boto3.client("s3", **shared, aws_access_key_id=name, aws_secret_access_key=secret)
    return S3Server(address, name, secret, client)
