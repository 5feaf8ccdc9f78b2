"""Schema of the `secrets` of tasks, and of their sources `vault` and `dcos`."""

from __future__ import annotations

from .fields import NEXT_LAUNCH_ONLY, Boolean, Seconds, Section, String


class SecretRecord(Section):
    source = String(
        "Source of the value: env:NAME, file:NAME, vault:MOUNT/PATH#KEY, dcos:PATH, reference:NAME#KEY, or a path in "
        "the DC/OS secret store (docs/secrets.md).",
        required=True,
        non_empty=True,
    )
    env = String("Environment variable with the value or, if file is set, with the path of the file; empty: none.")
    file = String("File in the working directory for the value; empty: none.")
    jobs = String(
        "Sections whose tasks get the secret, separated by commas; empty: all.", examples=["chief", "worker,gpu_worker"]
    )
    reload = String(
        "Action when the value changes while the program runs. hup: rewrite the file and send SIGHUP; empty: none, "
        "the next start gets the new value.",
        choices=("hup", ""),
        examples=["hup"],
    )


class SecretDeliverySection(Section):
    url = String(
        "URL of the scheduler's API for tasks; empty: http:// with the scheduler's host and port. With a stable URL, "
        f"tasks can start while the scheduler moves. {NEXT_LAUNCH_ONLY}",
        examples=["https://tensorflow.example.com:8443"],
    )
    ca_file = String(
        "Authorities that tasks trust for secret_delivery.url, a file on the scheduler's machine; empty: the "
        f"authorities of the agents. {NEXT_LAUNCH_ONLY}"
    )
    expires_seconds = Seconds(
        "Time after its launch during which a task can fetch its secrets once.", 600.0, minimum=1.0, maximum=86_400.0
    )
    from_agent_only = Boolean(
        "Deliver secrets only to the address of the task's agent or, on a virtual network, of its container. Disable "
        "this option for agents behind NAT.",
        default=True,
    )
    reload_seconds = Seconds(
        "Interval at which a task checks its reloadable secrets for changes.", 60.0, minimum=1.0, maximum=86_400.0
    )
    directory = String(
        "Folder on the scheduler's machine for file: sources, one value per file.", "/run/secrets", non_empty=True
    )


class VaultSection(Section):
    address = String("URL of HashiCorp Vault for vault: sources; empty: none.", examples=["https://vault:8200"])
    namespace = String("Namespace of Vault Enterprise; empty: none.")
    ca_file = String("Authorities trusted for Vault; empty: the defaults of the requests library.")
    token = String(
        "Source of the Vault token, as env:NAME or file:NAME; ignored with role_id.", "env:VAULT_TOKEN", non_empty=True
    )
    role_id = String("AppRole for the Vault login; empty: use token.")
    secret_id = String(
        "Source of the AppRole's secret id, as env:NAME or file:NAME.", "env:VAULT_SECRET_ID", non_empty=True
    )


class DcosSection(Section):
    url = String(
        "URL of DC/OS for its secret store; empty: the login URL of the service account.",
        examples=["https://leader.mesos"],
    )
    ca_file = String("Certificate authority of DC/OS, for login and secret store; empty: tls.ca_file.")
