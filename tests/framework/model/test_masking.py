"""Text that looks like a secret is masked anywhere; other text is shown."""

from __future__ import annotations

import json
import time

import pytest

from tf_scheduler.model.redaction import MASK, redact_text, redact_variables


@pytest.mark.parametrize(
    "text",
    [
        "https://me:CANARY@host/job.zip",
        "https://CANARY@host/job.zip",
        "https://CANARY:x-oauth-basic@host/job.zip",
        "https://CANARY:@host/job.zip",
        "postgres://u:p@CANARY@h/db",
        "postgres://u:p/CANARY@h/db",
        "zk://u:CANARY@h:2181,v:CANARY@k:2181/mesos",
        "https://h/job.zip?sv=1&sig=CANARY",
        "https://h/a?X-Amz-Credential=CANARY&X-Amz-Date=1&X-Amz-Signature=CANARY&X-Amz-Security-Token=CANARY",
        "https://h/a?access_token=CANARY,https://h/b?key=CANARY",
        "curl -u bob:CANARY https://h/",
        "curl -ubob:CANARY https://h/",
        "curl --user 'bob:CANARY' https://h/",
        "PGPASSWORD=CANARY psql",
        "PGPASSWORD='a CANARY'\"'\"'CANARY' psql",
        'sh -c "PGPASSWORD=CANARY psql"',
        'DB_PASS="a \\" CANARY" run',
        "train.py --password CANARY --api-key=CANARY --token 'a CANARY'",
        "curl -H 'Authorization: Bearer a CANARY' http://x",
        "curl -H 'X-Api-Key: CANARY' -H \"PRIVATE-TOKEN: CANARY\" -b x -H 'Cookie: a=CANARY'",
        "Authorization: Basic CANARY\nand so on",
        '{"user": "me", "password": "a \\" CANARY", "n": 1}',
        "{'password': 'CANARY'}",
        json.dumps({"context": json.dumps({"db_password": 'a " CANARY', "apiKey": "CANARY"})}),
        '{"password": CANARY}',
        "run cmd='PGPASSWORD=CANARY psql'",
        json.dumps({"a": json.dumps({"b": json.dumps({"token": 'x "\\ CANARY'})})}),
    ],
)
def test_a_secret_is_hidden(text: str) -> None:
    redacted = redact_text(text)

    assert "CANARY" not in redacted
    assert MASK in redacted
    assert redacted == redact_text(redacted)


@pytest.mark.parametrize(
    "text",
    [
        "python -u train.py --tokenizer=bert --max_tokens=100 --key_file=/k --passes=3 --steps 10",
        "ssh://git@host/a and hdfs://me@host/b and abfs://files@account.host/c",
        "http://host:8080/a@b?c=d",
        "zk://a:2181,b:2181/mesos",
        '{"cluster": {"worker": ["10.0.0.1:31000"]}, "task": {"type": "worker", "index": 0}}',
        "api.read_token: must name a source",
        "monkey=1 author=me signal=9 oauthless=1",
        "a: b, c://d, =, --, ://@",
    ],
)
def test_what_is_none_is_shown(text: str) -> None:
    assert text == redact_text(text)


def test_what_is_around_a_secret_is_shown() -> None:
    """For people to see what it is."""
    text = "PGPASSWORD=a psql -h h 'https://me:b@host/x?a=1&sig=c&d=2' && curl -u bob:d x --token e y"

    around = f"'https://me:{MASK}@host/x?a=1&sig={MASK}&d=2' && curl -u bob:{MASK} x --token {MASK} y"
    assert f"PGPASSWORD={MASK} psql -h h {around}" == redact_text(text)


def test_json_stays_json() -> None:
    """The options' document is shown as one."""
    inner = json.dumps({"db_password": 'a " b\\', "steps": 3, "pin": {"token": 1}})
    document = {"job_context": inner, "secret": "x", "last": "y"}

    redacted = json.loads(redact_text(json.dumps(document)))

    assert (MASK, "y") == (redacted["secret"], redacted["last"])
    assert {"db_password": MASK, "steps": 3, "pin": {"token": MASK}} == json.loads(redact_text(inner))


@pytest.mark.parametrize(
    "name", ["API_TOKEN", "PGPASS", "REGISTRY_AUTH", "AUTH", "NPM_AUTH_LINE", "AWS_SECRET_ACCESS_KEY", "my_pwd"]
)
def test_a_variable_with_the_name_of_a_secret_is_hidden(name: str) -> None:
    assert {name: MASK, "AUTHOR": "me", "URL": f"https://{MASK}@h"} == redact_variables(
        {name: "CANARY", "AUTHOR": "me", "URL": "https://CANARY@h"}
    )


_PIECES = (
    *("a", " ", "\\", '"', "'", "://", "://a:", "@", "://a:b@", "://a:b/", "=", "a=", "a='", "token=", "token=,", ":"),
    *('"a":', '"token":"', '"token":\'', '\\"token\\":\\"', '"token":"\\', "--a ", "--token ", "-u ", "-u a", "-ua:"),
    *("Authorization:", "Authorization: ", "x-", "x-key: ", "pass", "_key", ",", ", ", "token= ,", "\n", "--user  "),
)


@pytest.mark.parametrize("start", ["", "token=", '"token": ', "://"])
def test_long_texts_take_time_in_proportion(start: str) -> None:
    """Masking takes up to 0.1 s of CPU time for 100,000 characters of each kind."""
    began = time.process_time()

    for piece in _PIECES:
        redact_text(start + piece * (100_000 // len(piece)))
        assert time.process_time() - began < 30, piece
