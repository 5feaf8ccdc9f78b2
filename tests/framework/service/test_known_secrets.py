"""What the log of a scheduler hides: all secrets that it holds itself, wherever they came from."""

import json

from tf_scheduler.api.http.auth import Policy
from tf_scheduler.options.load import resolve
from tf_scheduler.service.secrets import known_secrets

PLAIN = {"service": {"command": "python train.py"}, "worker": {"count": 1}}


def known(environment=None, policy=None, **sections):
    service = {**PLAIN["service"], **sections.pop("service", {})}
    options = resolve({**PLAIN, **sections, "service": service})
    return {value for value in known_secrets(options, environment or {}, policy or Policy()) if value}


def test_where_there_is_none_nothing_is_hidden():
    """Not even variables that are called like a secret: their values may be paths."""
    assert set() == known({"API_KEY_FILE": "/etc/key.pem", "PATH": "/bin"})


def test_secret_options_are_known():
    """Those that are masked in every view."""
    assert {"the-key"} == known(service={"gcs_key": "the-key"})


def test_variables_of_tasks_are_known_by_their_names():
    """As they are masked in every view."""
    assert {"hunter22"} == known(worker={"count": 1, "environment": {"DB_PASSWORD": "hunter22", "MODE": "fast"}})


def test_variables_that_the_options_name_are_known():
    """Wherever in them: tokens of the API, sources of secrets."""
    secret = {"source": "env:DATABASE", "env": "DATABASE"}
    environment = {"WRITING": "write-token", "DATABASE": "db-password", "OTHER": "other"}

    found = known(environment, api={"write_token": "env:WRITING"}, secrets=[secret])

    assert {"write-token", "db-password"} == found


def test_tokens_are_known_that_were_read_from_files():
    """The policy has them."""
    assert {"r-token", "w-token"} == known(policy=Policy(read_token="r-token", write_token="w-token"))


def test_the_key_of_the_service_account_is_known():
    """Alone, too; a credential that is the name of a file is no secret."""
    credential = json.dumps({"uid": "tf", "private_key": "-----BEGIN\nMIIB\n"})

    assert {credential, "-----BEGIN\nMIIB\n"} == known({"DCOS_SERVICE_ACCOUNT_CREDENTIAL": credential})
    assert set() == known({"DCOS_SERVICE_ACCOUNT_CREDENTIAL": "/run/secrets/account"})
