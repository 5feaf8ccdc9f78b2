"""Random valid options documents, generated from the schema."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tf_executor.contract.strategies import Strategy
from tf_scheduler.options.schema.document import OPTIONS
from tf_scheduler.options.schema.fields import (
    Boolean,
    Environment,
    Integer,
    IntegerList,
    Number,
    RecordList,
    String,
    parse_ulimits,
)
from tf_scheduler.options.schema.values import parse_constraints, parse_line_pattern, parse_storage_options

Document = dict[str, Any]

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
#: Text without the separators of lists.
ENTRY = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\x1e\x1f"), max_size=12)
FILLED = ENTRY.filter(str.strip)
VARIABLE = st.from_regex(r"[-._a-zA-Z][-._a-zA-Z0-9]{0,7}", fullmatch=True)
NAME = st.from_regex(r"/?[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?(/[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?){0,2}", fullmatch=True)
CONSTRAINT = st.sampled_from(
    ["", "[]", '[["hostname", "UNIQUE"]]', "rack:MAX_PER:2,hostname:UNIQUE", '["@zone", "GROUP_BY", 3]']
)

#: Required jobs of a strategy.
NEEDED = {strategy.value: dict.fromkeys(strategy.traits.needed_sections or ("worker",), 1) for strategy in Strategy}


def value_of(field: Any) -> st.SearchStrategy[Any]:
    """Valid values of the field."""
    return next(strategy(field) for kind, strategy in _VALUES.items() if isinstance(field, kind))


def _numbers(field: Any) -> st.SearchStrategy[Any]:
    return st.floats(field.minimum, field.maximum) | st.sampled_from([field.minimum, field.maximum])


def _wholes(field: Any) -> st.SearchStrategy[int]:
    return st.integers(field.minimum, min(field.maximum, field.minimum + 50)) | st.sampled_from(
        [field.minimum, field.maximum]
    )


_PARSED = {
    parse_constraints: CONSTRAINT,
    parse_line_pattern: st.sampled_from(["", r"it (?P<step>\d+)"]),
    parse_storage_options: st.sampled_from(["", '{"endpoint_url": "https://host/{{a}}"}']),
    parse_ulimits: st.sampled_from(["", "nofile=65536", "core=0:unlimited, nproc=1:2"]),
}


def _texts(field: Any) -> st.SearchStrategy[str]:
    if field.choices:
        return st.sampled_from(field.choices)
    if field.parse in _PARSED:
        return _PARSED[field.parse]
    if field.pattern:
        fitting = st.from_regex(field.pattern, fullmatch=True)
        return fitting if field.non_empty else fitting | st.just("")
    # An option without a default has no empty value.
    return FILLED if field.non_empty or field.load_default is None else TEXT


def _records(field: Any) -> st.SearchStrategy[Any]:
    if "phase" in field.schema.fields:
        needed = {"plan": FILLED, "phase": FILLED, "job": value_of(field.schema.fields["job"])}
        return st.lists(st.fixed_dictionaries(needed, optional={"strategy": st.just("parallel")}), max_size=3)
    if "weight" in field.schema.fields:
        numbers = {name: value_of(part) for name, part in field.schema.fields.items() if not isinstance(part, String)}
        queue = st.fixed_dictionaries({"name": value_of(field.schema.fields["name"])}, optional=numbers)
        return st.lists(queue, max_size=3, unique_by=lambda record: record["name"])
    if "token" in field.schema.fields:
        users = {"name": value_of(field.schema.fields["name"]), "token": st.just("env:TOKEN")}
        return st.lists(st.fixed_dictionaries(users), max_size=3, unique_by=lambda record: record["name"])
    jobs = st.sampled_from(["", "worker", "chief,worker"])
    if "host_path" in field.schema.fields:
        needed = {"host_path": st.just("/mnt/a"), "container_path": FILLED}
        return st.lists(st.fixed_dictionaries(needed, optional={"mode": st.just("RO"), "jobs": jobs}), max_size=3)
    return st.lists(st.fixed_dictionaries({"source": FILLED}, optional={"jobs": jobs}), max_size=3)


_VALUES = {
    String: _texts,
    Boolean: lambda _: st.booleans(),
    Integer: _wholes,
    Number: _numbers,
    Environment: lambda _: st.dictionaries(VARIABLE, ENTRY, max_size=3).map(
        lambda found: [{"name": name, "value": text} for name, text in found.items()]
    ),
    IntegerList: lambda field: st.lists(value_of(field.item), max_size=3),
    RecordList: _records,
}


@st.composite
def documents(draw: st.DrawFn) -> Document:
    """Some of the options, with values that the rules over several options accept."""
    document: Document = {}
    for option in draw(st.lists(st.sampled_from(OPTIONS), unique=True, max_size=25)):
        _put(document, option.path, draw(value_of(option.field)))
    service = document.setdefault("service", {})
    service["name"] = draw(NAME)
    service |= draw(st.fixed_dictionaries({"command": FILLED}) | st.just({"command": "", "job_name": "mnist"}))
    _fit_jobs(document, draw(st.sampled_from(sorted(NEEDED))))
    _fit_service(service, draw)
    _fit_rest(document)
    return document


def _put(document: Document, path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        document = document.setdefault(name, {})
    document[path[-1]] = value


#: Records of `service.data`, in the form that Cosmos renders.
DATA = '[{"url": "http://host/{{a}}", "path": "b/\u00e4", "extract": false}, {"url": "file:///c", "link": true}]'


def _fit_jobs(document: Document, strategy: str) -> None:
    document["service"]["strategy"] = strategy
    for section, minimum in NEEDED[strategy].items():
        job = document.setdefault(section, {})
        job["count"] = max(minimum, job.get("count", minimum))
    if strategy not in ("parameter_server", "between_graph"):
        document.setdefault("parameter_server", {})["count"] = 0
    if strategy == "parameter_server" and document.get("finish"):
        document["finish"]["success"] = "chief"


def _fit_service(service: Document, draw: st.DrawFn) -> None:
    service["role"] = draw(st.sampled_from(["", "*", "training", "dev/team"]))
    if "job_context" in service:
        service["job_context"] = draw(st.sampled_from(["", "{}", '{"rate": 0.5, "name": "\\u00e4\\""}']))
    if "data" in service:
        service["data"] = draw(st.sampled_from(["", "http://host/a.tgz", "file:///a, https://host/b", DATA]))
    if "job_url" in service:
        service["job_url"] = draw(st.sampled_from(["", "train.py", "http://host/\u00e4 b.zip?c={{d}}"]))
    if service.get("job_name") or service.get("job_sha256"):
        service["job_url"] = service.get("job_url") or "http://host/job.zip"
    if service.get("service_account_secret") or service.get("service_account"):
        service["service_account"] = service.get("service_account") or "account"
        service["principal"] = draw(st.sampled_from(["", service["service_account"]]))
    if service.get("addressing") == "named":
        service["virtual_network_enabled"] = True
    if "virtual_network_plugin_labels" in service:
        service["virtual_network_plugin_labels"] = draw(st.sampled_from(["", "a:b", "a:b,c:d"]))
    kerberos = service.get("security", {}).get("kerberos", {})
    if kerberos.get("enabled"):
        kerberos |= {
            "realm": "LOCAL",
            "primary": "tf",
            "keytab_secret": "keytab",
            "kdc": {"hostname": "kdc", "port": 88},
        }


def _fit_rest(document: Document) -> None:
    worker, collective = document.get("worker", {}), document["service"]["strategy"] == "multi_worker_mirrored"
    if worker.get("min_count"):
        alone = collective and not document.get("gpu_worker", {}).get("count")
        worker["min_count"] = min(worker["min_count"], worker.get("count", 3)) if alone else 0
    if elastic := worker.get("elastic"):
        count, alone = worker.get("count", 3), not document.get("gpu_worker", {}).get("count")
        elastic["min"], elastic["max"] = min(elastic.get("min", 0), count), max(elastic.get("max", 0), count)
        if collective or document["service"]["strategy"] != "parameter_server" or not (alone and elastic["max"]):
            elastic["mode"] = "restart"
        if not (alone and elastic["max"]) or not (collective or elastic.get("mode") == "live"):
            elastic["grow"] = "manual"
    if "mode" in document.get("storage", {}):
        is_url = document["storage"]["mode"] in ("direct", "carried")
        document["service"]["checkpoint_dir"] = "s3://bucket/run" if is_url else "/mnt/run"
    restart = document.get("restart", {})
    if restart:
        restart["backoff"] = min(restart.get("backoff", 1.0), restart.setdefault("max_backoff", 300.0))
    if document.get("health"):
        document["health"] |= {"target": "true", "jobs": "worker, chief"}
    if document.get("metrics"):
        document["metrics"] |= {"statsd": "statsd.example:8125"}
    if document.get("tls"):
        document["tls"] |= {"enabled": True, "certificate_file": "cert.pem", "key_file": "key.pem"}
    plans = document.get("plans", {})
    if document["service"]["strategy"] != "parameter_server":
        plans |= {name: "parallel" for name in ("deploy", "update") if name in plans}
    for place, record in enumerate(plans.get("phases", [])):
        record["plan"] = f"{place} {record['plan']}"
    if document["service"].get("job_sha256") and "extract" in document.get("executor", {}):
        document["executor"]["extract"] = "executor"
    _fit_access(document)
    _fit_ports(document)
    for place, record in enumerate(document.get("volumes", [])):
        record["container_path"] = f"volume-{place}"
    for place, record in enumerate(document.get("secrets", [])):
        record["env" if place % 2 else "file"] = f"SECRET_{place}"
        record["source"] = ("folder/name", "reference:name", "file:name", "env:NAME")[place % 4]


def _fit_ports(document: Document) -> None:
    """Tasks with addresses of their own need no further ports."""
    if document["service"].get("virtual_network_enabled"):
        for section in document.values():
            if isinstance(section, dict) and "ports" in section:
                section["ports"] = 1


def _fit_access(document: Document) -> None:
    """Addresses, and sources of the scheduler's own secrets."""
    own = {
        "vault": {"address": "https://vault:8200", "token": "file:vault/token", "secret_id": "env:ID"},
        "dcos": {"url": "https://leader.mesos"},
        "secret_delivery": {"url": "http://host:80"},
        "mesos": {"secret": ""},
    }
    if "api" in document:
        files = {name: f"{name}.pem" for name in ("certificate_file", "key_file", "client_ca_file")}
        document["api"] |= {"authentication": "auto", "read_token": "env:READ", "write_token": "file:w", **files}
    for section, values in own.items():
        given = document.get(section, {})
        given |= {name: value for name, value in values.items() if name in given}
