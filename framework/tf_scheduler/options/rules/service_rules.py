"""Check options of the service, its API, secrets and volumes against each other."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import product
from urllib.parse import urlsplit

from tf_scheduler.errors import Problem
from tf_scheduler.model.digests import DataFile, split_data
from tf_scheduler.model.redaction import redact_text
from tf_scheduler.model.secrets import parse_source
from tf_scheduler.model.spec import StorageMode, Uri
from tf_scheduler.options.schema.fields import json_excerpt
from tf_scheduler.options.schema.jobs import JOBS
from tf_scheduler.options.schema.scheduler_options import LINK
from tf_scheduler.options.schema.values import Document, split_names

#: Service names of Marathon and DC/OS: lower-case words, dashes, folders.
_NAME = re.compile(r"/?[a-z0-9]([a-z0-9-]*[a-z0-9])?(/[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")

#: host:port, with IPv6 addresses in brackets.
_SERVER = re.compile(r"(\[[0-9a-fA-F:]+\]|[^:\[\]\s/]+):(?P<port>[0-9]{1,5})")


def service_name_is_marathon_id(options: Document) -> Iterator[Problem]:
    name = options["service"]["name"]
    if not _NAME.fullmatch(name):
        allowed = "lower-case words (letters, digits, dashes) separated by '/', such as dev/mnist"
        yield Problem("service.name", f"must be {allowed}, not {json_excerpt(name)}")


def service_name_fits_host_name(options: Document) -> Iterator[Problem]:
    """Limit the name's length, because DC/OS makes a DNS label of it, without slashes."""
    name = options["service"]["name"].replace("/", "")
    if len(name) > 63:
        yield Problem("service.name", f"must have at most 63 characters, not counting '/', but has {len(name)}")


def queue_names_are_unique(options: Document) -> Iterator[Problem]:
    yield from _duplicates("queue.queues", options["queue"]["queues"])


def users_can_log_in(options: Document) -> Iterator[Problem]:
    """Require different names, and a token or the authority of client certificates."""
    yield from _duplicates("api.users", options["api"]["users"])
    for index, user in enumerate(options["api"]["users"]):
        if not (user["token"] or options["api"]["client_ca_file"]):
            yield Problem(f"api.users.{index}.token", "required without api.client_ca_file")


def _duplicates(path: str, records: Sequence[Document]) -> Iterator[Problem]:
    names = [record["name"] for record in records]
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Problem(f"{path}.{index}.name", f"duplicate name {json_excerpt(name)}")


def role_is_valid(options: Document) -> Iterator[Problem]:
    role = options["service"]["role"]
    wrong = any(part in ("", ".", "..", "*") or part.startswith("-") for part in role.split("/"))
    if role and role != "*" and (wrong or any(char.isspace() for char in role)):
        allowed = "words that contain no white space and do not start with '-', separated by '/'"
        yield Problem("service.role", f"invalid Mesos role {json_excerpt(role)}; use {allowed}")


def principal_is_service_account(options: Document) -> Iterator[Problem]:
    """Reject a principal other than the service account: Mesos would refuse it."""
    principal, account = options["service"]["principal"], options["service"]["service_account"]
    if principal and account and principal != account:
        yield Problem("service.principal", f"must be service.service_account ({account}) or empty, not {principal}")


def account_secret_needs_account(options: Document) -> Iterator[Problem]:
    service = options["service"]
    if service["service_account_secret"] and not service["service_account"]:
        yield Problem("service.service_account", "required with service.service_account_secret")


def job_name_needs_job_url(options: Document) -> Iterator[Problem]:
    if options["service"]["job_name"] and not options["service"]["job_url"]:
        yield Problem("service.job_url", f"required: URL of the archive with module {options['service']['job_name']}")


def data_has_fetchable_urls(options: Document) -> Iterator[Problem]:
    """Require URLs that agents can fetch and cache; accept paths, for local runs."""
    for url, link in ((file.url, file.link) for file in split_data(options["service"]["data"])):
        if "://" in url and urlsplit(url).scheme not in ("http", "https", "ftp", "ftps", "file"):
            allowed = "must be URLs with the scheme http, https, ftp, ftps or file"
            yield Problem("service.data", f"{allowed}, not {json_excerpt(url)}")
        elif "://" in url and link and not url.startswith("file:///"):
            yield Problem("service.data", f"link needs a URL such as file:///mnt/mnist.npz, not {json_excerpt(url)}")


def data_paths_are_in_working_directory(options: Document) -> Iterator[Problem]:
    for file in split_data(options["service"]["data"]):
        parts = _name(file).split("/")
        if file.path and ({"", ".", ".."} & set(parts) or parts[0] == "~"):
            why = "must be a path below the working directory, which is also `~`, such as .keras/datasets/mnist.npz"
            yield Problem("service.data", f"{why}, not {json_excerpt(file.path)}")
        elif RESERVED_NAME.fullmatch(parts[0]):
            yield Problem("service.data", f"{json_excerpt(_name(file))}: Mesos and the executor use this name")


def _name(file: DataFile) -> str:
    return Uri(file.url, output_file=file.path).file_name


def files_have_different_names(options: Document) -> Iterator[Problem]:
    """Reject different files of the same name, which would overwrite each other."""
    service, seen = options["service"], dict[str, DataFile]()
    job = (DataFile(service["job_url"], service["job_sha256"].lower()),) if service["job_url"] else ()
    rule = "names of the files of service.job_url and service.data must differ"
    for file in (*job, *split_data(service["data"])):
        name = _name(file)
        if (other := seen.setdefault(name, file)) != file:
            why = f"{json_excerpt(other.url)} and {json_excerpt(file.url)} have the same file name {json_excerpt(name)}"
            yield Problem("service.data", f"{why}; {rule}")
    for name in seen:
        if inner := next((other for other in seen if other.startswith(f"{name}/")), ""):
            yield Problem(
                "service.data", f"{json_excerpt(name)} is a file, and a folder of {json_excerpt(inner)}; {rule}"
            )


def job_digest_needs_job_url(options: Document) -> Iterator[Problem]:
    if options["service"]["job_sha256"] and not options["service"]["job_url"]:
        yield Problem("service.job_url", "required with service.job_sha256")


def digests_need_extraction_by_executor(options: Document) -> Iterator[Problem]:
    """Reject digests and subfolders for archives that Mesos extracts.

    Mesos extracts an archive before any check, and always into the working directory.
    """
    service, files = options["service"], split_data(options["service"]["data"])
    if options["executor"]["extract"] != "mesos":
        return
    if inner := next((file.path for file in files if file.extract and not file.link and "/" in file.path), ""):
        yield Problem("executor.extract", f"must be `executor`, or {json_excerpt(inner)} needs `extract`: false")
    if service["job_sha256"] or any(file.digest for file in files):
        why = "must be `executor`, because service.job_sha256 or service.data has a digest, which Mesos does not check"
        yield Problem("executor.extract", why)


def storage_mode_fits_folder(options: Document) -> Iterator[Problem]:
    service, mode = options["service"], options["storage"]["mode"]
    folder = service["checkpoint_dir"] or service["shared_filesystem"]
    if mode == StorageMode.MOUNTED.value and "://" in folder:
        yield Problem("storage.mode", f"mounted requires a path in service.checkpoint_dir, not {redact_text(folder)}")
    elif mode in (StorageMode.DIRECT.value, StorageMode.CARRIED.value) and "://" not in folder:
        example = "a URL in service.checkpoint_dir, such as s3://bucket/run"
        yield Problem("storage.mode", f"{mode} requires {example}, not {json_excerpt(folder)}")


#: URL schemes that may have no server: hdfs then uses the one of its configuration.
_WITHOUT_BUCKET = ("file", "local", "hdfs", "viewfs")
_WITHOUT_QUERY = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "hdfs", "viewfs")


def checkpoint_url_names_its_storage(options: Document) -> Iterator[Problem]:
    """Reject URLs of checkpoints that name no writable storage, bucket or folder."""
    for name in ("checkpoint_dir", "shared_filesystem"):
        url = options["service"][name]
        scheme, separator, rest = url.partition("://")
        if single := re.match(r"([a-z0-9]{2,}):/(?!/)", url):
            yield Problem(f"service.{name}", f"{json_excerpt(url)} is not a URL; expected {single[1]}://bucket/run")
        elif not separator:
            continue
        elif scheme != scheme.lower():
            yield Problem(f"service.{name}", f"unknown scheme {scheme}://; write {scheme.lower()}://")
        elif scheme in ("http", "https"):
            yield Problem(f"service.{name}", f"{scheme}:// cannot be written; expected a storage, such as s3://")
        elif scheme in ("memory", "ram"):
            yield Problem(f"service.{name}", f"{scheme}:// ends with its process; expected a storage, such as s3://")
        elif not rest.strip("/") or (rest.startswith("/") and scheme not in _WITHOUT_BUCKET):
            yield Problem(f"service.{name}", f"{scheme}:// has no bucket or folder; expected {scheme}://bucket/run")
        elif redact_text(url) != url:
            yield Problem(f"service.{name}", f"{redact_text(url)} contains a key; use secrets instead")
        elif "?" in url and scheme in _WITHOUT_QUERY:
            yield Problem(f"service.{name}", f"{scheme}:// has no query string; use storage.options instead")


def job_context_is_json_object(options: Document) -> Iterator[Problem]:
    """Require a JSON object; an empty text means {}, as in the original package."""
    text = options["service"]["job_context"]
    try:
        context = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        yield Problem("service.job_context", f"must be a JSON object as text: {error}")
        return
    if not isinstance(context, dict):
        yield Problem("service.job_context", f"must be a JSON object as text, not {json_excerpt(context)}")


def named_addressing_needs_virtual_network(options: Document) -> Iterator[Problem]:
    service = options["service"]
    if service["addressing"] == "named" and not service["virtual_network_enabled"]:
        yield Problem("service.addressing", "the value `named` requires service.virtual_network_enabled")


def network_labels_are_pairs(options: Document) -> Iterator[Problem]:
    labels = options["service"]["virtual_network_plugin_labels"]
    wrong = [pair for pair in labels.split(",") if not re.fullmatch(r"\s*[^:\s]+\s*:[^:]*", pair)]
    if labels and wrong:
        message = f"must be pairs such as k_0:v_0,k_1:v_1, not {json_excerpt(labels)}"
        yield Problem("service.virtual_network_plugin_labels", message)


def kerberos_has_required_options(options: Document) -> Iterator[Problem]:
    kerberos = options["service"]["security"]["kerberos"]
    if kerberos["enabled"]:
        needed = {"kdc.hostname": kerberos["kdc"]["hostname"], "kdc.port": kerberos["kdc"]["port"]}
        needed |= {name: kerberos[name] for name in ("primary", "realm", "keytab_secret")}
        missing = (name for name, value in needed.items() if not value)
        yield from (Problem(f"service.security.kerberos.{name}", "required for Kerberos") for name in missing)


def certificates_have_keys(options: Document) -> Iterator[Problem]:
    for section in ("tls", "api"):
        names = ("certificate_file", "key_file")
        missing = [name for name in names if not options[section][name]]
        if len(missing) == 1:
            yield Problem(f"{section}.{missing[0]}", "required: set certificate_file and key_file together")


def statsd_is_host_and_port(options: Document) -> Iterator[Problem]:
    server = options["metrics"]["statsd"]
    match = _SERVER.fullmatch(server)
    if server and (match is None or not 0 < int(match["port"]) < 65_536):
        yield Problem("metrics.statsd", f"must be host:port, such as 10.0.0.1:8125, not {json_excerpt(server)}")


#: Option -> option that it requires.
_REQUIRED = {
    **{f"tls.{name}": "tls.enabled" for name in ("ca_file", "certificate_file", "key_file")},
    "api.client_ca_file": "api.certificate_file",
    "api.writers": "api.client_ca_file",
}


def required_options_are_set(options: Document) -> Iterator[Problem]:
    for path, required in _REQUIRED.items():
        (section, name), (other_section, other) = path.split("."), required.split(".")
        if options[section][name] and not options[other_section][other]:
            yield Problem(path, f"requires {required}")


_CREDENTIALS = ("read_token", "write_token", "users", "client_ca_file")


def open_api_has_no_credentials(options: Document) -> Iterator[Problem]:
    api = options["api"]
    credentials = [name for name in _CREDENTIALS if api[name]]
    if api["authentication"] == "none" and credentials:
        yield Problem("api.authentication", f"must not be `none`, because api.{credentials[0]} would be ignored")


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Sections and options with the source of a credential of the scheduler.
_SECRET_OPTIONS = {"vault": ("token", "secret_id"), "mesos": ("secret",), "api": ("read_token", "write_token")}
#: Names in the working directory that agent and executor use; also for `service.data`.
RESERVED_NAME = re.compile(r"(stdout|stderr|executor\.log)(\..*)?|\.tf_executor|\.python|.*\.pyz", re.DOTALL)
#: Folders without which no task can start, relative to the root.
_SYSTEM_FOLDERS = frozenset({"bin", "dev", "etc", "lib", "lib64", "proc", "sbin", "sys", "usr"})
#: Sections whose tasks may have volumes.
_SECTIONS = (*JOBS, "tensorboard", "data_service")
#: Folder for the output of programs.
_LOGS = "logs"


def secret_destinations_are_valid(options: Document) -> Iterator[Problem]:
    for index, record in enumerate(options["secrets"]):
        env, file = record["env"], record["file"]
        if not env and not file:
            yield Problem(f"secrets.{index}", "must have env, file or both")
        if env and not _VARIABLE.fullmatch(env):
            yield Problem(f"secrets.{index}.env", f"must match {_VARIABLE.pattern}, not {json_excerpt(env)}")
        if file and {"", ".", ".."} & set(file.split("/")):
            expected = "a file name, or a path below the working directory"
            yield Problem(f"secrets.{index}.file", f"must be {expected}, not {json_excerpt(file)}")


def jobs_of_secrets_and_volumes_exist(options: Document) -> Iterator[Problem]:
    for option, allowed in (("secrets", tuple(JOBS)), ("volumes", _SECTIONS)):
        for index, record in enumerate(options[option]):
            wrong = [name for name in split_names(record["jobs"]) if name not in allowed]
            if wrong:
                message = f"unknown section {', '.join(wrong)}; expected some of {', '.join(allowed)}"
                yield Problem(f"{option}.{index}.jobs", message)


def destinations_are_unique(options: Document) -> Iterator[Problem]:
    for option, sections in (("secrets", tuple(JOBS)), ("volumes", _SECTIONS)):
        seen: dict[tuple[str, str, str], int] = {}
        for index, record in enumerate(options[option]):
            kinds = [kind for kind in ("env", "file", "container_path") if record.get(kind)]
            for job, kind in product(split_names(record["jobs"]) or sections, kinds):
                value = record[kind].rstrip("/")
                first = seen.setdefault((job, kind, value), index)
                if first != index:
                    yield Problem(f"{option}.{index}", f"duplicate {value} of {job}: already set by {option}.{first}")
                    break


def secret_sources_are_valid(options: Document) -> Iterator[Problem]:
    for index, record in enumerate(options["secrets"]):
        try:
            parse_source(record["source"])
        except ValueError as error:
            yield Problem(f"secrets.{index}.source", f"{error}, not {json_excerpt(record['source'])}")


def secret_files_are_unused(options: Document) -> Iterator[Problem]:
    """Reject names of the sandbox and of the job's files: secrets would replace these."""
    service = options["service"]
    files = [(service["job_url"], ""), *((file.url, file.path) for file in split_data(service["data"]))]
    job_files = {path or urlsplit(url).path.rstrip("/").rpartition("/")[2] for url, path in files} - {""}
    for index, record in enumerate(options["secrets"]):
        file, first = record["file"], record["file"].partition("/")[0]
        if RESERVED_NAME.fullmatch(first) or file == _LOGS:
            why = "the sandbox uses this name for content that is readable in Mesos and in the API"
            yield Problem(f"secrets.{index}.file", f"must not be {json_excerpt(file)}: {why}")
        elif file and (_collides(file, job_files) or file == service["job_path"]):
            yield Problem(f"secrets.{index}.file", f"must not be {json_excerpt(file)}: the job has a file of this name")


def _collides(file: str, others: Collection[str]) -> bool:
    """Whether a path equals, contains, or is below the path of one of `others`."""
    return any(f"{file}/".startswith(f"{other}/") or other.startswith(f"{file}/") for other in others)


def secret_sources_fit_destinations(options: Document) -> Iterator[Problem]:
    for index, record in enumerate(options["secrets"]):
        scheme = _scheme(record["source"])
        if scheme == "reference" and (record["file"] or not record["env"]):
            yield Problem(f"secrets.{index}", "Mesos passes a reference only as a variable: set env, not file")
        if record["reload"] and not record["file"]:
            yield Problem(f"secrets.{index}.reload", "set file, because variables of a running program cannot change")
        elif record["reload"] and scheme == "env":
            yield Problem(f"secrets.{index}.reload", "must be empty, because the value of an env source never changes")


def vault_sources_need_vault(options: Document) -> Iterator[Problem]:
    schemes = {_scheme(record["source"]) for record in options["secrets"]}
    if "vault" in schemes and not options["vault"]["address"]:
        yield Problem("vault.address", "required by secrets whose source begins with `vault:`")


def secret_urls_are_http(options: Document) -> Iterator[Problem]:
    for section, name in (("vault", "address"), ("dcos", "url"), ("secret_delivery", "url")):
        text = options[section][name]
        parts = urlsplit(text)
        if text and (parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment):
            yield Problem(
                f"{section}.{name}", f"must be http://host:port or https://host:port, not {json_excerpt(text)}"
            )


def scheduler_secrets_are_local(options: Document) -> Iterator[Problem]:
    """Reject credentials as values: these options name a variable or a file."""
    named = ((section, name) for section, names in _SECRET_OPTIONS.items() for name in names)
    sources = {f"{section}.{name}": options[section][name] for section, name in named}
    sources |= {f"api.users.{index}.token": user["token"] for index, user in enumerate(options["api"]["users"])}
    for path, text in sources.items():
        if text and _scheme(text) not in ("env", "file"):
            forms = f"env:NAME (a variable) or file:NAME (a file in {options['secret_delivery']['directory']})"
            # Do not repeat the value: it may be the secret itself.
            yield Problem(path, f"must name a source: {forms}")


def mesos_secret_needs_principal(options: Document) -> Iterator[Problem]:
    service = options["service"]
    if not options["mesos"]["secret"]:
        return
    if service["service_account_secret"]:
        yield Problem("mesos.secret", "cannot be combined with service.service_account_secret")
    elif not service["principal"]:
        yield Problem("service.principal", "required with mesos.secret")
    elif ":" in service["principal"]:
        yield Problem("service.principal", "must not contain ':' with mesos.secret, because HTTP Basic forbids it")


def _scheme(text: str) -> str:
    """Return the scheme of a source; empty if the source is invalid."""
    try:
        return parse_source(text).scheme
    except ValueError:
        return ""


def volume_paths_are_valid(options: Document) -> Iterator[Problem]:
    for index, record in enumerate(options["volumes"]):
        path = record["host_path"]
        if not path.startswith("/") or ".." in path.split("/"):
            message = f"must be an absolute path without '..', not {json_excerpt(path)}"
            yield Problem(f"volumes.{index}.host_path", message)
        path = record["container_path"]
        if {".", ".."} & set(path.split("/")) or not path.strip("/"):
            expected = "a path without '.' and '..', either absolute or below the working directory"
            yield Problem(f"volumes.{index}.container_path", f"must be {expected}, not {json_excerpt(path)}")
        elif path.startswith("/") and path.strip("/") in _SYSTEM_FOLDERS:
            message = f"must not be {json_excerpt(path)}: the task would lose the programs or users of its system"
            yield Problem(f"volumes.{index}.container_path", message)


def linked_volumes_are_valid(options: Document) -> Iterator[Problem]:
    """Require paths at which an executor without root rights can create links."""
    links = options["volumes"] if options["executor"]["volumes"] == LINK else []
    for index, record in enumerate(links):
        path, host = record["container_path"], record["host_path"]
        expected = ""
        if path.startswith("/") and path.rstrip("/") != host.rstrip("/"):
            expected = f"a path below the working directory, such as data, or the host_path {json_excerpt(host)}"
        elif any(path.startswith(f"{other['container_path'].rstrip('/')}/") for other in links if other is not record):
            expected = "a path outside of the other volumes"
        if expected:
            why = "volumes are linked, not mounted (executor.volumes)"
            yield Problem(f"volumes.{index}.container_path", f"must be {expected}, not {json_excerpt(path)}: {why}")
