"""Schema of the sections of the scheduler, the executor, the API and secrets."""

from __future__ import annotations

from tf_scheduler.model.digests import DIGEST_EXPECTED, DIGEST_PATTERN

from .fields import NEXT_LAUNCH_ONLY, Boolean, Cores, Integer, OnUpdate, RecordList, Seconds, Section, String
from .queue import LINE, ONE_LINE

#: Value of executor.volumes: links in place of mounts.
LINK = "link"


class SchedulerSection(Section):
    cpus = Cores("CPUs of the scheduler.", 0.5, maximum=64.0)
    mem = Integer("Memory of the scheduler.", 512, minimum=128, maximum=65_536, unit="MB")
    containerized = Boolean(
        "Run the scheduler in a container image; false: use the agent's Python.",
        default=True,
        title="Run in a container",
    )
    image = String(
        "Container image of the scheduler (Python 3.10 or newer); empty: the image named in the package.",
        examples=["python:3.13-slim-bookworm"],
    )
    # Marathon inserts the value into a shell command.
    python = String(
        "Python interpreter of the scheduler, in the image or on the agent.",
        "python3",
        non_empty=True,
        pattern=r"[A-Za-z0-9_./][A-Za-z0-9_./+@:-]*",
        expected="a name or a path that contains no white space or shell metacharacters",
    )
    state = String(
        "State store: zk://host:port,host:port/path for ZooKeeper, or file:///folder/state.db for a local file.",
        "zk://master.mesos:2181",
        non_empty=True,
        update=OnUpdate.REJECTED,
        examples=["zk://10.0.0.1:2181,10.0.0.2:2181/mesos-frameworks", "zk://master.mesos:2181?credentials=/run/zk"],
        title="State store",
    )
    state_acl = String(
        "State in ZooKeeper that every client of ZooKeeper can change, because scheduler.state has no credentials. "
        "warn: start, with a warning in the log and in health. required: do not start.",
        "warn",
        choices=("warn", "required"),
    )


class ExecutorSection(Section):
    url = String("URL from which agents fetch the executor's bundle; empty: the bundle of the package.")
    sha256 = String(
        "SHA-256 digest of the executor's bundle, in hexadecimal. Agents do not start a bundle with another digest. "
        "Empty: the digest of the package's bundle, or no check if executor.url is set.",
        pattern=DIGEST_PATTERN,
        expected=DIGEST_EXPECTED,
    )
    extract = String(
        "Program that extracts the archives of service.job_url and service.data. executor: the executor, as the user "
        "of the task, within limits (docs/evidence/security.md). mesos: the fetcher of the agents, with tar and unzip "
        "and without limits; the executor still extracts a job_url that agents cannot fetch, such as s3.",
        "executor",
        choices=("executor", "mesos"),
        title="Extract archives with",
    )
    volumes = String(
        "How tasks get their volumes. mesos: the agents mount them, with the isolator filesystem/linux. link: the "
        "executor links a container_path below the working directory to the host_path, and RO is not enforced. Local "
        f"runs link them. {NEXT_LAUNCH_ONLY}",
        "mesos",
        choices=("mesos", LINK),
    )
    python = String("Python interpreter of the executor on the agents (3.8 or newer).", "python3", non_empty=True)
    cpus = Cores("CPUs of each executor.", 0.1, maximum=64.0)
    output_bytes = Integer(
        "Size at which the files of a task's standard output and standard error are rotated.",
        32 << 20,
        minimum=1 << 16,
        maximum=1 << 40,
        unit="bytes",
        title="Maximum size of an output file",
    )
    output_backups = Integer(
        "Number of old files to keep for each of the two outputs.", 3, maximum=100, title="Old output files"
    )
    new_privileges = Boolean(
        "Allow programs to gain privileges by set-user-id files and file capabilities, for example by sudo, fusermount "
        f"or nvidia-modprobe. false: they run with the privileges of the task's user. {NEXT_LAUNCH_ONLY}",
        title="Allow new privileges",
    )
    enforce_memory = Boolean(
        "Kill a program whose processes use more resident memory than the mem of its task. Needless on agents with the "
        f"isolator cgroups/mem, whose kernel does it. {NEXT_LAUNCH_ONLY}",
        title="Enforce memory",
    )
    exec = Boolean(
        "Allow clients with write access to run commands in the tasks (dcos tensorflow exec), as the user of the task. "
        "false: such commands are refused, also in running tasks; tasks that are launched meanwhile never run any.",
        default=True,
        title="Allow exec",
    )
    mem = Integer("Memory of each executor.", 64, minimum=32, maximum=65_536, unit="MB")


class UserRecord(Section):
    """Schema of an entry of `api.users`."""

    name = String(
        "Name of the user: the owner of the user's jobs, and the common name of the user's client certificate.",
        required=True,
        non_empty=True,
        pattern=LINE,
        expected=ONE_LINE,
        examples=["alice"],
    )
    token = String(
        "Source of the user's token, as env:NAME or file:NAME; empty: the user has a client certificate.",
        examples=["env:ALICE_TOKEN"],
    )


class ApiSection(Section):
    authentication = String(
        "Access to the API. auto: clients need a configured token or certificate. Without configured credentials, the "
        "API starts only on loopback, or under Marathon, where everybody can read and only clients at the addresses of "
        "the Mesos masters (DC/OS Admin Router) can write. none: insecure; every client that can connect may run any "
        "program as service.user, with all secrets.",
        "auto",
        choices=("auto", "none"),
    )
    read_token = String(
        "Source of the read-only token, as env:NAME or file:NAME; empty: no token.", examples=["env:API_READ_TOKEN"]
    )
    write_token = String(
        "Source of the read-write token, as env:NAME or file:NAME; empty: no token.", examples=["file:api-token"]
    )
    users = RecordList(
        UserRecord,
        "Users who may write, each with a token or a client certificate. In a queue service, a job belongs to the user "
        "who submits it: other users cannot read, change or cancel it. Operators can: clients with api.write_token, or "
        "with a certificate named in api.writers.",
    )
    certificate_file = String("File with the TLS certificate of the API; empty: the API uses HTTP instead of HTTPS.")
    key_file = String("File with the private key of api.certificate_file.")
    client_ca_file = String("File with the CA certificates of API clients; empty: client certificates are not used.")
    writers = String(
        "Common names of client certificates with write access, separated by commas, in addition to "
        "those of api.users; empty: all.",
        examples=["alice,ci"],
        title="Certificates with write access",
    )


class MesosSection(Section):
    master = String(
        "Address of the Mesos master: host:port (several separated by commas) or zk://host:port/path.",
        "zk://master.mesos:2181/mesos",
        non_empty=True,
        examples=["10.0.0.1:5050"],
    )
    secret = String(
        "Source of the secret of service.principal, as env:NAME or file:NAME. Masters with HTTP Basic authentication "
        "require the secret. Empty: no secret.",
        examples=["env:MESOS_SECRET"],
    )
    agent_credentials_over_http = Boolean(
        "Send the credentials for Mesos (mesos.secret or the login of the service account) to agents without TLS, too. "
        "Agents need the credentials only to show files of tasks, if they require a login. Any listener on the network "
        "between scheduler and agent can then read the credentials, and any program that answers at the address of an "
        "agent gets them."
    )


class TlsSection(Section):
    enabled = Boolean("Connect to the Mesos master over HTTPS.")
    ca_file = String(
        "File or folder with the trusted authorities; empty: on DC/OS Enterprise $MESOS_SANDBOX/.ssl/ca-bundle.crt or "
        "/run/dcos/pki/CA/ca-bundle.crt, elsewhere the authorities of the system."
    )
    certificate_file = String("File with the client certificate of the scheduler; empty: no certificate.")
    key_file = String("File with the private key of tls.certificate_file.")


class HistorySection(Section):
    store = String(
        "Existing folder on the scheduler's machine that a team shares, such as an NFS volume. It gets the record of "
        "the run, without secrets, when the run ends, and the web page shows earlier runs. Empty: no folder.",
        pattern=r"/[^\x00-\x1f\x7f]*",
        expected="an absolute path",
        examples=["/mnt/nfs/runs"],
        title="Folder of past runs",
    )


class MetricsSection(Section):
    statsd = String(
        "StatsD server for the scheduler's metrics, as host:port; empty: the server that DC/OS names, if any.",
        examples=["127.0.0.1:8125"],
    )


# --- Secrets


class SecretRecord(Section):
    source = String(
        "Source of the value: env:NAME, file:NAME, vault:MOUNT/PATH#KEY, dcos:PATH, reference:NAME#KEY, or a path in "
        "the DC/OS secret store (docs/how-to/secrets.md).",
        required=True,
        non_empty=True,
    )
    env = String("Environment variable for the value or, if `file` is set, for the path of the file; empty: none.")
    file = String("File in the task's working directory for the value; empty: no file.")
    jobs = String(
        "Sections whose tasks get the secret, separated by commas; empty: all.", examples=["chief", "worker,gpu_worker"]
    )
    reload = String(
        "Action when the value changes while the program runs. hup: rewrite the file and send SIGHUP. Empty: no "
        "action; the program gets the new value when it starts again.",
        choices=("hup", ""),
        examples=["hup"],
    )


class SecretDeliverySection(Section):
    url = String(
        "URL at which tasks reach the scheduler's API; empty: http:// with the scheduler's host and port. With a "
        f"stable URL, tasks can start while the scheduler moves to another agent. {NEXT_LAUNCH_ONLY}",
        examples=["https://tensorflow.example.com:8443"],
    )
    ca_file = String(
        "File on the scheduler's machine with the certificate authorities for secret_delivery.url; empty: tasks trust "
        f"the authorities of their agents. {NEXT_LAUNCH_ONLY}"
    )
    expires_seconds = Seconds(
        "Time after its launch in which a task can fetch its secrets once.",
        600.0,
        minimum=1.0,
        maximum=86_400.0,
        title="Time to fetch",
    )
    from_agent_only = Boolean(
        "Deliver the secrets of a task only to its agent's address or, on a virtual network, to its container's "
        "address. Disable this option if agents are behind NAT.",
        default=True,
        title="Deliver to agents only",
    )
    executor_authentication = String(
        "Agents for tasks with secrets. required: only agents with the flag --authenticate_http_executors, which the "
        "scheduler reads from the agents. optional: all agents. The value optional weakens the protection: without "
        "the flag, any process on an agent, of any user, can take the secrets of a task that starts there.",
        "required",
        choices=("required", "optional"),
    )
    reload_seconds = Seconds(
        "Interval at which a task checks its reloadable secrets for changes.",
        60.0,
        minimum=1.0,
        maximum=86_400.0,
        title="Reload interval",
    )
    directory = String(
        "Folder on the scheduler's machine for sources file:NAME, one file per value.", "/run/secrets", non_empty=True
    )


class VaultSection(Section):
    address = String("URL of HashiCorp Vault; empty: no Vault.", examples=["https://vault:8200"])
    namespace = String("Namespace of Vault Enterprise; empty: no namespace.")
    ca_file = String("File with trusted authorities for Vault; empty: those of the Python package `requests`.")
    token = String(
        "Vault token, as env:NAME or file:NAME; ignored if vault.role_id is set.", "env:VAULT_TOKEN", non_empty=True
    )
    role_id = String("Role id of the AppRole for the Vault login; empty: log in with vault.token.")
    secret_id = String(
        "Source of the AppRole's secret id, as env:NAME or file:NAME.", "env:VAULT_SECRET_ID", non_empty=True
    )


class DcosSection(Section):
    url = String(
        "URL of DC/OS for its secret store; empty: the login URL of the service account.",
        examples=["https://leader.mesos"],
    )
    ca_file = String("Certificate authority of DC/OS, for login and secret store; empty: the value of tls.ca_file.")
