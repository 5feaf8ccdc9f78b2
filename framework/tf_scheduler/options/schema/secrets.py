"""Schema of the `secrets` of tasks, and of their sources `vault` and `dcos`."""

from __future__ import annotations

from .fields import NEXT_LAUNCH_ONLY, Boolean, Seconds, Section, String


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
