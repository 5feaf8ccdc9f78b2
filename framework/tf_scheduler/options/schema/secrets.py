"""Schema of `secrets`, their delivery to tasks, and their sources `vault` and `dcos`."""

from __future__ import annotations

from .fields import NEXT_LAUNCH_ONLY, Boolean, Number, Section, String, option_metadata


class SecretRecord(Section):
    source = String(
        required=True,
        non_empty=True,
        metadata=option_metadata(
            "Source of the value: env:NAME, file:NAME, vault:MOUNT/PATH#KEY, dcos:PATH, "
            "reference:NAME#KEY, or a path in the DC/OS secret store (docs/secrets.md)."
        ),
    )
    env = String(
        load_default="",
        metadata=option_metadata("Environment variable for the value; with file: for the path of the file."),
    )
    file = String(load_default="", metadata=option_metadata("File in the working directory for the value."))
    jobs = String(
        load_default="",
        metadata=option_metadata(
            "Sections whose tasks get the secret, separated by commas; empty: all.",
            examples=["chief", "worker,gpu_worker"],
        ),
    )
    reload = String(
        load_default="",
        choices=("hup", ""),
        metadata=option_metadata(
            "Action when the value changes while the program runs. hup: rewrite the file and send SIGHUP; "
            "empty: none, the next start gets the new value.",
            examples=["hup"],
        ),
    )


class SecretDeliverySection(Section):
    url = String(
        load_default="",
        metadata=option_metadata(
            "URL of the scheduler's API for tasks; empty: http:// with the scheduler's host and port. "
            f"With a stable URL, tasks can start while the scheduler moves. {NEXT_LAUNCH_ONLY}",
            examples=["https://tensorflow.example.com:8443"],
        ),
    )
    ca_file = String(
        load_default="",
        metadata=option_metadata(
            "Authorities that tasks trust for secret_delivery.url, a file on the scheduler's machine; "
            f"empty: the authorities of the agents. {NEXT_LAUNCH_ONLY}"
        ),
    )
    expires_seconds = Number(
        load_default=600.0,
        minimum=1.0,
        maximum=86_400.0,
        unit="seconds",
        metadata=option_metadata("Time after its launch during which a task can fetch its secrets once.", "seconds"),
    )
    from_agent_only = Boolean(
        load_default=True,
        metadata=option_metadata(
            "Deliver secrets only to the address of the task's agent or, on a virtual network, of its "
            "container. Disable this option for agents behind NAT."
        ),
    )
    reload_seconds = Number(
        load_default=60.0,
        minimum=1.0,
        maximum=86_400.0,
        unit="seconds",
        metadata=option_metadata("Interval at which a task checks its reloadable secrets for changes.", "seconds"),
    )
    directory = String(
        load_default="/run/secrets",
        non_empty=True,
        metadata=option_metadata("Folder on the scheduler's machine for file: sources, one value per file."),
    )


class VaultSection(Section):
    address = String(
        load_default="",
        metadata=option_metadata(
            "URL of HashiCorp Vault for vault: sources; empty: none.", examples=["https://vault:8200"]
        ),
    )
    namespace = String(load_default="", metadata=option_metadata("Namespace of Vault Enterprise; empty: none."))
    ca_file = String(
        load_default="",
        metadata=option_metadata("Authorities trusted for Vault; empty: the defaults of the requests library."),
    )
    token = String(
        load_default="env:VAULT_TOKEN",
        non_empty=True,
        metadata=option_metadata("Source of the Vault token, as env:NAME or file:NAME; ignored with role_id."),
    )
    role_id = String(load_default="", metadata=option_metadata("AppRole for the Vault login; empty: use token."))
    secret_id = String(
        load_default="env:VAULT_SECRET_ID",
        non_empty=True,
        metadata=option_metadata("Source of the AppRole's secret id, as env:NAME or file:NAME."),
    )


class DcosSection(Section):
    url = String(
        load_default="",
        metadata=option_metadata(
            "URL of DC/OS for its secret store; empty: the login URL of the service account.",
            examples=["https://leader.mesos"],
        ),
    )
    ca_file = String(
        load_default="",
        metadata=option_metadata("Certificate authority of DC/OS, for login and secret store; empty: tls.ca_file."),
    )
