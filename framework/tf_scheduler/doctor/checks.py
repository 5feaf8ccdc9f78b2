"""Checks of `doctor`: judge the gathered facts; every check is a pure function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from tf_executor.contract.http import is_loopback
from tf_executor.contract.text import format_duration, format_memory
from tf_scheduler.model.offer import authenticates_executors
from tf_scheduler.model.secrets import find_neighbours

from .facts import (
    AgentFacts,
    ArtefactFacts,
    CertificateFacts,
    Facts,
    LaptopFacts,
    MasterFacts,
    ServiceFacts,
    StoreFacts,
    Unknown,
)

# --- Findings


class Level(str, Enum):
    """Result of a check."""

    RED = "red"
    YELLOW = "yellow"
    GREEN = "green"
    #: Grey: the facts are unknown.
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result, its reason, and what to do about it."""

    level: Level
    message: str
    remedy: str = ""


def _green(message: str) -> Finding:
    return Finding(Level.GREEN, message)


def _unchecked(unknown: Unknown) -> Finding:
    return Finding(Level.NOT_CHECKED, unknown.reason)


def _of(judge: Callable[..., Finding], *names: str) -> Callable[[Facts], Finding]:
    """Return a check of these facts by `judge`; not checked if a fact is unknown."""

    def check(facts: Facts) -> Finding:
        values = [getattr(facts, name) for name in names]
        unknown = [value for value in values if isinstance(value, Unknown)]
        return _unchecked(unknown[0]) if unknown else judge(*values)

    return check


_MAX_NAMES = 5
_Item = TypeVar("_Item", bound=object)


def _names(items: Iterable[_Item]) -> str:
    """Return up to five items as text, with the number of the remaining items."""
    texts = list(dict.fromkeys(map(str, items)))
    more = f" and {len(texts) - _MAX_NAMES} more" if len(texts) > _MAX_NAMES else ""
    return ", ".join(texts[:_MAX_NAMES]) + more


# --- Security


def executor_login(agents: tuple[AgentFacts, ...], has_secrets: bool) -> Finding:
    """Check that no other process can pose as executor, or run commands in a task."""
    remedy = "start the agents with --authenticate_http_executors and --jwt_secret_key=FILE"
    off = [agent.hostname for agent, flags in _flags(agents) if not authenticates_executors(flags)]
    is_open = [agent.hostname for agent, flags in _flags(agents) if not _protects_containers(flags)]
    problems, remedies = [], []
    if off and has_secrets:
        problems.append(f"any process of these agents can take the secrets of a task that starts there: {_names(off)}")
        remedies.append(remedy)
    if is_open and has_secrets:
        problems.append(f"every client of these agents can run commands in a task with secrets: {_names(is_open)}")
        remedies.append(f"start them with --authenticate_http_readwrite, or with --acls for {', '.join(_COMMAND_ACLS)}")
    if problems:
        return Finding(Level.RED, "; ".join(problems), "; ".join(remedies))
    if off:
        return Finding(Level.YELLOW, f"these agents do not authenticate executors: {_names(off)}", remedy)
    return _silent_agents(agents) or _green("the agents authenticate executors")


#: Rows of --acls for the calls of an agent's API that run commands (Mesos: docs/authorization.md).
_COMMAND_ACLS = (
    "launch_standalone_containers",
    "launch_nested_containers_as_user",
    "launch_nested_container_sessions_as_user",
)


def _protects_containers(flags: Mapping[str, str]) -> bool:
    """Return whether flags show a login or permissions for commands in tasks."""
    acls = flags.get("acls", "")
    has_acls = "permissive: false" in acls or all(row in acls for row in _COMMAND_ACLS)
    has_module = flags.get("authorizer", "local") != "local"
    return flags.get("authenticate_http_readwrite") == "true" or has_acls or has_module


def _flags(agents: Iterable[AgentFacts]) -> Iterator[tuple[AgentFacts, Mapping[str, str]]]:
    """Yield the agents that returned their flags."""
    for agent in agents:
        if not isinstance(agent.flags, Unknown):
            yield agent, agent.flags


def _silent_agents(agents: tuple[AgentFacts, ...]) -> Finding | None:
    """Return a finding about agents that did not return their flags; None: all did."""
    silent = [agent for agent in agents if isinstance(agent.flags, Unknown)]
    if not silent:
        return None if agents else Finding(Level.NOT_CHECKED, "no agent is registered with the master")
    assert isinstance(silent[0].flags, Unknown)
    message = f"no flags from {_names(agent.hostname for agent in silent)}: {silent[0].flags.reason}"
    remedy = "run this command where the agents can be reached, or permit GET /flags of the agents"
    return Finding(Level.NOT_CHECKED if len(silent) == len(agents) else Level.YELLOW, message, remedy)


def shared_user(options: Mapping[str, Any], master: MasterFacts, own: str) -> Finding:
    """Check for other frameworks' tasks of this user, which can read memory and files."""
    user = str(options["service"]["user"])
    names = {item.id: item.name for item in master.frameworks}
    remedy = "choose a service.user of its own for each service (a new installation)"
    if neighbours := find_neighbours(master.running, own, user):
        shared = _names(sorted(names[framework] for framework, _ in neighbours))
        message = f"tasks of other frameworks run as user {user} on the same agents: {shared}"
        return Finding(Level.RED, message, remedy)
    others = (task.framework for task in master.running if task.user == user and task.framework != own)
    if elsewhere := sorted(names[framework] for framework in others):
        message = f"tasks of other frameworks run as user {user} on other agents: {_names(elsewhere)}"
        return Finding(Level.YELLOW, message, remedy)
    return _green(f"no task of another framework runs as user {user}")


def isolation(agents: tuple[AgentFacts, ...], has_secrets: bool) -> Finding:
    """Check that executors are not root, and that tasks do not see others' processes."""
    answered = list(_flags(agents))
    fixed = [agent for agent, flags in answered if flags.get("switch_user") == "false"]
    as_root = [agent.hostname for agent in fixed if agent.runs_as_root is not False]
    open_processes = [
        agent.hostname
        for agent, flags in answered
        if "namespaces/pid" not in (part.strip() for part in flags.get("isolation", "").split(","))
    ]
    problems, remedies = [], []
    if as_root:
        problems.append(f"executors run as the user of the agent, usually root: {_names(as_root)}")
        remedies.append("start these agents with --switch_user")
    if open_processes and has_secrets:
        problems.append(f"processes of a task with secrets are visible to other tasks: {_names(open_processes)}")
        remedies.append("add namespaces/pid to --isolation of these agents")
    if problems:
        return Finding(Level.RED, "; ".join(problems), "; ".join(remedies))
    if fixed:
        message = f"tasks of all services run as the user of the agent: {_names(agent.hostname for agent in fixed)}"
        return Finding(Level.YELLOW, message, "run the agents as root with --switch_user")
    return _silent_agents(agents) or _green("the agents run executors as the task's user")


def zookeeper_acl(store: StoreFacts) -> Finding:
    """Check that only the service can write its state, which decides what runs."""
    remedy = "install the service again with zk://HOSTS?credentials=FILE in scheduler.state (docs/how-to/install.md)"
    if store.is_open:
        message = f"every client of {store.address} can read, change and delete the state (ACL world:anyone)"
        return Finding(Level.RED, message, remedy)
    if store.is_open is None and not store.has_credentials:
        message = f"scheduler.state has no credentials: every client of {store.address} will be able to change it"
        return Finding(Level.YELLOW, message, remedy)
    return _green("only the service can access its state")


def open_api(facts: Facts) -> Finding:
    """Check that writes need a token: a write can run programs as the service's user."""
    remedy = "set api.write_token (docs/reference/api.md)"
    if not isinstance(facts.options, Unknown) and facts.options["api"]["authentication"] == "none":
        return Finding(Level.RED, "api.authentication is none: every client has full access", remedy)
    if isinstance(facts.api, Unknown):
        return _unchecked(facts.api)
    api = facts.api
    if api.status in (401, 403):
        return _green(f"{api.url} refuses writes without a token")
    if api.status != 404:
        return Finding(Level.NOT_CHECKED, f"{api.url} answered HTTP {api.status} to a write without a token")
    if api.from_master:
        message = f"{api.url} accepts writes from the master's machine, where this command runs"
        return Finding(Level.NOT_CHECKED, message, "run this command on another machine")
    return Finding(Level.RED, f"{api.url} accepts writes without a token", remedy)


#: Days before the end of a certificate.
_EXPIRES_SOON, _EXPIRES = 14.0, 30.0


def tls(facts: Facts) -> Finding:
    """Check that secrets are encrypted in the network, and certificates are valid."""
    findings = [*_plain_secrets(facts), *map(_certificate, facts.certificates)]
    for level in (Level.RED, Level.YELLOW, Level.GREEN):
        if chosen := [finding for finding in findings if finding.level is level]:
            return Finding(level, _joined(item.message for item in chosen), _joined(item.remedy for item in chosen))
    return _unchecked(facts.options) if isinstance(facts.options, Unknown) else _green("no secret crosses the network")


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(filter(None, texts)))


def _plain_secrets(facts: Facts) -> Iterator[Finding]:
    if isinstance(facts.options, Unknown):
        return
    options, url = facts.options, _delivery_url(facts)
    if facts.has_secrets and not url.startswith("https://") and not is_loopback(url):
        place = f"from {url}" if url else "because the API has no certificate"
        remedy = "set api.certificate_file and api.key_file, or an https URL in secret_delivery.url"
        yield Finding(Level.RED, f"tasks get their secrets unencrypted, {place}", remedy)
    if options["mesos"]["secret"] and not options["tls"]["enabled"]:
        yield Finding(Level.YELLOW, "mesos.secret is sent to the master unencrypted", "set tls.enabled")


def _delivery_url(facts: Facts) -> str:
    """Return the URL from which tasks get secrets; empty: an http URL, host unknown."""
    assert not isinstance(facts.options, Unknown)
    if url := str(facts.options["secret_delivery"]["url"]):
        return url
    if not isinstance(facts.api, Unknown):
        return facts.api.url
    return "https://" if facts.options["api"]["certificate_file"] else ""


def _certificate(certificate: CertificateFacts) -> Finding:
    days, url = certificate.days_left, certificate.url
    if certificate.problem:
        remedy = "set DCOS_TENSORFLOW_CA_FILE to the CA's PEM file"
        return Finding(Level.YELLOW, f"{url}: {certificate.problem}", remedy)
    if days < _EXPIRES:
        text = f"the certificate of {url} {f'expires in {days:.0f} days' if days > 0 else 'has expired'}"
        return Finding(Level.RED if days < _EXPIRES_SOON else Level.YELLOW, text, "renew the certificate")
    return _green(f"the certificate of {url} is valid for {days:.0f} days")


# --- Cluster and service


def same_name(master: MasterFacts, options: Mapping[str, Any], own: str) -> Finding:
    """Check that no other framework with the service's name runs the same tasks."""
    name = str(options["service"]["name"])
    others = [item.id for item in master.frameworks if item.name == name and item.id != own]
    if not others:
        return _green(f"no other framework has the name {name}")
    if own:
        remedy = f"tear the other framework down (docs/how-to/troubleshooting.md), for example {others[0]}"
        return Finding(Level.RED, f"other frameworks have the name {name}: {_names(others)}", remedy)
    remedy = "choose another service.name, or uninstall that service; if it is this service, pass its --url"
    return Finding(Level.RED, f"a framework of the name {name} is registered: {_names(others)}", remedy)


#: Seconds. A Date header has whole seconds.
MAX_CLOCK_OFFSET = 5.0


def clock(facts: Facts) -> Finding:
    """Check that the clocks agree; deadlines, tokens and certificates depend on them."""
    servers = {} if isinstance(facts.master, Unknown) else {"the master": facts.master.clock_offset}
    if not isinstance(facts.agents, Unknown):
        servers |= {f"agent {agent.hostname}": agent.clock_offset for agent in facts.agents}
    offsets = {name: seconds for name, seconds in servers.items() if seconds is not None}
    wrong = [_offset_text(name, seconds) for name, seconds in offsets.items() if abs(seconds) > MAX_CLOCK_OFFSET]
    own = () if isinstance(facts.service, Unknown) else facts.service.clock_problems
    if wrong or own:
        message = f"{_names(wrong)}{'; ' if wrong and own else ''}{'; '.join(own[-_MAX_NAMES:])}"
        return Finding(Level.RED, message, "synchronize the clocks with NTP, for example with chrony")
    if not offsets:
        return _unchecked(facts.master if isinstance(facts.master, Unknown) else Unknown("no server returned its time"))
    return _green(f"the clocks of {len(offsets)} servers agree with this machine's")


def _offset_text(server: str, seconds: float) -> str:
    side = "ahead of" if seconds > 0 else "behind"
    return f"the clock of {server} is {format_duration(round(abs(seconds)))} {side} this machine's"


def refused_calls(service: ServiceFacts) -> Finding:
    """Check that Mesos accepts the scheduler's calls. Refused calls have no effect."""
    if service.refused_calls:
        remedy = "grant the scheduler's principal the permissions that the message names (docs/how-to/install.md)"
        return Finding(Level.RED, f"Mesos refuses calls: {service.refused_calls}", remedy)
    if service.failed_calls:
        message = f"calls failed since the subscription: {_joined(service.failed_calls[-_MAX_NAMES:])}"
        return Finding(Level.YELLOW, message, "check the network to the master, and the load of the master")
    return _green("Mesos has answered all calls since the subscription")


def leftovers(service: ServiceFacts) -> Finding:
    """Check that no abandoned launch may still run, because it may write checkpoints."""
    if service.may_still_run:
        remedy = "restart these agents or the connection to them, or mark them as gone (docs/how-to/troubleshooting.md)"
        return Finding(Level.RED, _names(service.may_still_run), remedy)
    return _green("no launch that was given up may still run")


#: Default of recovery.avoid_for in seconds.
_AVOID_FOR = 900.0


def failing_agents(facts: Facts) -> Finding:
    """Check for agents that drop or lose launches, because each one delays the job."""
    if isinstance(facts.service, Unknown):
        return _unchecked(facts.service)
    agents = facts.service.failing_agents
    remedy = "read the logs of these agents; drain an agent that does not recover (docs/how-to/troubleshooting.md)"
    if avoided := [f"{host} ({len(failures)} launches)" for host, failures, until in agents if until > facts.now]:
        return Finding(Level.RED, f"launches keep failing on {_names(avoided)}", remedy)
    window = _AVOID_FOR if isinstance(facts.options, Unknown) else facts.options["recovery"]["avoid_for"]
    recent = [host for host, failures, _ in agents if any(at > facts.now - window for at in failures)]
    if recent:
        return Finding(Level.YELLOW, f"launches have failed on {_names(recent)} in the last {window:g} s", remedy)
    return _green("no launch was dropped or lost recently")


def artefacts(artefacts: tuple[ArtefactFacts, ...]) -> Finding:
    """Check that the files that options name can be fetched. Tasks need them to start."""
    if wrong := [f"{item.option}: {item.url}: {item.problem}" for item in artefacts if item.problem]:
        return Finding(Level.RED, _names(wrong), "upload the file, or correct the option")
    if skipped := [f"{item.option}: {item.url}" for item in artefacts if not item.is_checked]:
        return Finding(Level.NOT_CHECKED, f"this machine cannot request {_names(skipped)}")
    count = len(artefacts)
    return _green(f"{count} URL{'' if count == 1 else 's'} of the options can be fetched from this machine")


# --- Laptop


_MIB, _GIB = 1 << 20, 1 << 30
#: Free bytes of a folder.
_MIN_FREE, _SCARCE = 3 * _GIB, 5 * _GIB


def disk(laptop: LaptopFacts) -> Finding:
    """Check the free disk space, for logs, checkpoints and the 123 MB Mesos library."""
    free = laptop.free
    for level, limit in ((Level.RED, _MIN_FREE), (Level.YELLOW, _SCARCE)):
        if low := [f"{folder}: {format_memory(size / _MIB)} free" for folder, size in free.items() if size < limit]:
            remedy = "free disk space, or set TMPDIR, XDG_STATE_HOME and XDG_CACHE_HOME to another disk"
            return Finding(level, _names(low), remedy)
    return _green(f"at least {format_memory(min(free.values(), default=0) / _MIB)} free")


#: Available bytes of memory: for one program with TensorFlow, and for two.
_MIN_MEMORY, _SCARCE_MEMORY = _GIB, 2 * _GIB


def memory(laptop: LaptopFacts) -> Finding:
    """Check the available memory, because each task of a local run loads TensorFlow."""
    size = laptop.memory
    if size is None:
        return Finding(Level.NOT_CHECKED, "the available memory of this machine is unknown")
    message = f"{format_memory(size / _MIB)} available"
    if size < _SCARCE_MEMORY:
        level = Level.RED if size < _MIN_MEMORY else Level.YELLOW
        return Finding(level, message, "end other programs, or use fewer tasks")
    return _green(message)


#: Oldest Python of this program (setup.cfg).
MIN_PYTHON = (3, 10)


def python(laptop: LaptopFacts) -> Finding:
    """Check the Python version of this program, and the interpreters of local tasks."""
    version = ".".join(map(str, laptop.python))
    if laptop.python < MIN_PYTHON:
        return Finding(Level.RED, f"Python {version} is too old", "use Python 3.10 or newer")
    if laptop.missing_programs:
        message = f"programs of the options do not exist on this machine: {_names(laptop.missing_programs)}"
        remedy = "correct the option `python`, or run: dcos-tensorflow runtime create NAME"
        return Finding(Level.RED, message, remedy)
    return _green(f"Python {version}")


def training(laptop: LaptopFacts) -> Finding:
    """Check the TensorFlow and Keras versions of this Python and of the runtimes."""
    named = {name: _training_versions(packages) for name, packages in laptop.trainings.items()}
    if not any(named.values()):
        remedy = 'pip install "tensorflow-cpu~=2.21.0", or: dcos-tensorflow runtime create tf --tensorflow 2.21'
        return Finding(Level.YELLOW, "neither this Python nor a runtime has TensorFlow", remedy)
    message = "; ".join(f"{name}: {text or 'no TensorFlow'}" for name, text in named.items())
    first = next(packages for name, packages in laptop.trainings.items() if named[name])
    if first.get("keras", "").startswith("3.") and "tf_keras" not in first:
        return Finding(
            Level.YELLOW, message, "for Model.fit of several workers, install tf_keras: docs/tutorials/first-job.md"
        )
    return _green(message)


def _training_versions(packages: Mapping[str, str]) -> str:
    version = packages.get("tensorflow", packages.get("tensorflow_cpu"))
    names = {"keras": "Keras", "tf_keras": "tf_keras"}
    others = [f"{title} {packages[name]}" for name, title in names.items() if name in packages]
    return ", ".join([f"TensorFlow {version}", *others]) if version else ""


def gpus(laptop: LaptopFacts) -> Finding:
    """List the GPUs that nvidia-smi reports."""
    names = laptop.gpus
    return _green(f"{len(names)}: {_names(names)}" if names else "none: local runs only count the GPUs of tasks")


def ports(laptop: LaptopFacts) -> Finding:
    """Check the default ports of `local up`, which uses others if these are taken."""
    if taken := laptop.taken_ports:
        remedy = "nothing: `local up` uses other ports; end these programs if you need port 5050"
        return Finding(Level.YELLOW, f"default ports of `local up` in use: {_names(taken)}", remedy)
    return _green("no other program uses the default ports of `local up`")


#: Packages of Debian with the libraries that the local Mesos needs.
SYSTEM_PACKAGES = "libsvn1 libapr1 libsasl2-2 libcurl4 libssl3"


def libraries(laptop: LaptopFacts) -> Finding:
    """Check the Python packages of this program, and the libraries of local Mesos."""
    if laptop.missing_libraries:
        message = f"missing Python packages: {_names(laptop.missing_libraries)}"
        return Finding(Level.RED, message, "install the program again with pip")
    if laptop.no_local_mesos:
        message = f"no local cluster can run here: {laptop.no_local_mesos}"
        install = f"run: sudo apt-get install {SYSTEM_PACKAGES}; or " if "missing libraries" in message else ""
        return Finding(Level.YELLOW, message, f"{install}use the master of an existing Mesos")
    return _green("all libraries are installed")


# --- Table


@dataclass(frozen=True, slots=True)
class Check:
    """One check, a line of the output. Programs may rely on `name`."""

    name: str
    title: str
    judge: Callable[[Facts], Finding]
    is_security: bool = False


CHECKS = (
    Check("executor_login", "executor authentication", _of(executor_login, "agents", "has_secrets"), is_security=True),
    Check("shared_user", "shared user", _of(shared_user, "options", "master", "own_id"), is_security=True),
    Check("isolation", "root executors, isolation", _of(isolation, "agents", "has_secrets"), is_security=True),
    Check("zookeeper_acl", "ZooKeeper ACL", _of(zookeeper_acl, "store"), is_security=True),
    Check("open_api", "open API", open_api, is_security=True),
    Check("tls", "TLS", tls, is_security=True),
    Check("same_name", "frameworks of the same name", _of(same_name, "master", "options", "own_id")),
    Check("clock", "clocks", clock),
    Check("refused_calls", "refused calls", _of(refused_calls, "service")),
    Check("leftovers", "launches that may still run", _of(leftovers, "service")),
    Check("failing_agents", "agents that drop launches", failing_agents),
    Check("artefacts", "artefacts", _of(artefacts, "artefacts")),
    Check("ports", "ports", _of(ports, "laptop")),
    Check("memory", "memory", _of(memory, "laptop")),
    Check("disk", "disk space", _of(disk, "laptop")),
    Check("python", "Python", _of(python, "laptop")),
    Check("libraries", "libraries", _of(libraries, "laptop")),
    Check("training", "TensorFlow", _of(training, "laptop")),
    Check("gpus", "GPUs", _of(gpus, "laptop")),
)


def judge(facts: Facts, *, security: bool = False) -> list[tuple[Check, Finding]]:
    """Return the finding of each check, or with `security` of each security check."""
    return [(check, check.judge(facts)) for check in CHECKS if check.is_security or not security]
