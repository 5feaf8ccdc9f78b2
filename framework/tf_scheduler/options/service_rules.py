"""Rules over options of the service and of its connections. Each is named as the sentence that it enforces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from tf_scheduler.errors import Problem

from .fields import shown
from .words import words

Document = Mapping[str, Any]

#: As Marathon and DC/OS accept it: lower-case words, dashes, folders.
_NAME = re.compile(r"/?[a-z0-9]([a-z0-9-]*[a-z0-9])?(/[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")

#: An IPv6 address stands in brackets.
_SERVER = re.compile(r"(\[[0-9a-fA-F:]+\]|[^:\[\]\s/]+):(?P<port>[0-9]{1,5})")


def the_service_name_is_a_marathon_id(options: Document) -> Iterator[Problem]:
    name = options["service"]["name"]
    if not _NAME.fullmatch(name):
        allowed = "lower-case letters, digits and dashes, in folders parted by '/' (such as dev/mnist)"
        yield Problem("service.name", f"must be {allowed}, not {shown(name)}")


def the_service_name_fits_into_a_host_name(options: Document) -> Iterator[Problem]:
    """DC/OS makes names such as worker-0.<service>.autoip.dcos.thisdcos.directory of it, without the slashes."""
    name = options["service"]["name"].replace("/", "")
    if len(name) > 63:
        yield Problem("service.name", f"must have at most 63 characters besides '/', not {len(name)}")


def the_role_is_one_that_mesos_accepts(options: Document) -> Iterator[Problem]:
    role = options["service"]["role"]
    wrong = any(part in ("", ".", "..", "*") or part.startswith("-") for part in role.split("/"))
    if role and role != "*" and (wrong or any(char.isspace() for char in role)):
        yield Problem("service.role", f"is no Mesos role: {shown(role)}; use words parted by '/', without white space")


def the_principal_is_the_service_account(options: Document) -> Iterator[Problem]:
    """Mesos refuses a principal other than the one that logged in."""
    principal, account = options["service"]["principal"], options["service"]["service_account"]
    if principal and account and principal != account:
        yield Problem("service.principal", f"must be service.service_account ({account}) or empty, not {principal}")


def a_service_accounts_secret_needs_the_account(options: Document) -> Iterator[Problem]:
    service = options["service"]
    if service["service_account_secret"] and not service["service_account"]:
        yield Problem("service.service_account", "is needed with service.service_account_secret")


def a_job_name_comes_with_its_file(options: Document) -> Iterator[Problem]:
    if options["service"]["job_name"] and not options["service"]["job_url"]:
        yield Problem("service.job_url", f"is needed: it holds the module {options['service']['job_name']}")


def data_is_where_agents_fetch_from(options: Document) -> Iterator[Problem]:
    """Only what they fetch they keep."""
    for url in words(options["service"]["data"]):
        if urlsplit(url).scheme not in ("http", "https", "ftp", "ftps", "file"):
            allowed = "must have addresses that begin with http:, https:, ftp: or file:"
            yield Problem("service.data", f"{allowed}, not {shown(url)}")


def the_job_context_is_a_json_object(options: Document) -> Iterator[Problem]:
    """Empty stands for {}, as in the original package."""
    text = options["service"]["job_context"]
    try:
        context = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        yield Problem("service.job_context", f"must be a JSON object as text: {error}")
        return
    if not isinstance(context, dict):
        yield Problem("service.job_context", f"must be a JSON object as text, not {shown(context)}")


def named_addresses_need_a_virtual_network(options: Document) -> Iterator[Problem]:
    service = options["service"]
    if service["addressing"] == "named" and not service["virtual_network_enabled"]:
        yield Problem("service.addressing", "named needs service.virtual_network_enabled: agents share their ports")


def network_labels_are_pairs(options: Document) -> Iterator[Problem]:
    labels = options["service"]["virtual_network_plugin_labels"]
    wrong = [pair for pair in labels.split(",") if not re.fullmatch(r"\s*[^:\s]+\s*:[^:]*", pair)]
    if labels and wrong:
        yield Problem("service.virtual_network_plugin_labels", f"must be k_0:v_0,k_1:v_1, not {shown(labels)}")


def kerberos_knows_its_centre_realm_and_keytab(options: Document) -> Iterator[Problem]:
    kerberos = options["service"]["security"]["kerberos"]
    if kerberos["enabled"]:
        needed = {"kdc.hostname": kerberos["kdc"]["hostname"], "kdc.port": kerberos["kdc"]["port"]}
        needed |= {name: kerberos[name] for name in ("primary", "realm", "keytab_secret")}
        missing = (name for name, value in needed.items() if not value)
        yield from (Problem(f"service.security.kerberos.{name}", "is needed to use Kerberos") for name in missing)


def a_certificate_comes_with_its_key(options: Document) -> Iterator[Problem]:
    tls = options["tls"]
    if bool(tls["certificate_file"]) != bool(tls["key_file"]):
        missing = "key_file" if tls["certificate_file"] else "certificate_file"
        yield Problem(f"tls.{missing}", "is needed: a certificate and its key belong together")


def a_statsd_server_is_a_host_and_a_port(options: Document) -> Iterator[Problem]:
    server = options["metrics"]["statsd"]
    found = _SERVER.fullmatch(server)
    if server and (found is None or not 0 < int(found["port"]) < 65_536):
        yield Problem("metrics.statsd", f"must be host:port, such as 10.0.0.1:8125, not {shown(server)}")


def tls_files_are_for_encrypted_connections(options: Document) -> Iterator[Problem]:
    tls = options["tls"]
    for name in ("ca_file", "certificate_file", "key_file"):
        if tls[name] and not tls["enabled"]:
            yield Problem(f"tls.{name}", "needs tls.enabled: nothing is encrypted without it")
