"""`secrets`: values that tasks need and nobody else may see; `secret_delivery`, `vault`, `dcos`: the way of them."""

from __future__ import annotations

from tf_scheduler.options.fields import Flag, Number, Text

from .base import FROM_NOW_ON, Section, about

_SOURCE = "a source as in secrets, of env: or file:"


class SecretRecord(Section):
    source = Text(
        required=True,
        filled=True,
        metadata=about(
            "Where the value is: env:NAME, file:NAME, vault:MOUNT/PATH#KEY, dcos:PATH or reference:NAME#KEY; a path "
            "alone is one in the DC/OS secret store. docs/secrets.md tells the rest."
        ),
    )
    env = Text(
        load_default="",
        metadata=about("Environment variable that gets the value; with file, the path of that file."),
    )
    file = Text(load_default="", metadata=about("File in the working directory that gets the value."))
    jobs = Text(
        load_default="",
        metadata=about(
            "Sections whose tasks get it, with commas between; empty: all.", examples=["chief", "worker,gpu_worker"]
        ),
    )
    reload = Text(
        load_default="",
        choices=("hup", ""),
        metadata=about(
            "What happens when the value changes while the program runs. hup: its file is written again, and the "
            "program gets SIGHUP. Empty: nothing, the next start gets it.",
            examples=["hup"],
        ),
    )


class SecretDeliverySection(Section):
    url = Text(
        load_default="",
        metadata=about(
            "Address of the scheduler's API for tasks; empty: http://, its host and its port. One that stays when the "
            f"scheduler moves lets tasks start meanwhile. {FROM_NOW_ON}",
            examples=["https://tensorflow.example.com:8443"],
        ),
    )
    ca_file = Text(
        load_default="",
        metadata=about(
            "Certificates of the authorities that tasks shall trust there, a file on the scheduler's machine; empty: "
            f"those of the agents. {FROM_NOW_ON}"
        ),
    )
    expires_seconds = Number(
        load_default=600.0,
        least=1.0,
        most=86_400.0,
        unit="seconds",
        metadata=about("How long after its launch a task may fetch its secrets, once.", "seconds"),
    )
    from_agent_only = Flag(
        load_default=True,
        metadata=about(
            "Give a task's secrets only to the address of its agent and, on a virtual network, of its container. Not "
            "for agents behind NAT."
        ),
    )
    reload_seconds = Number(
        load_default=60.0,
        least=1.0,
        most=86_400.0,
        unit="seconds",
        metadata=about("How often a task asks whether a secret with reload has changed.", "seconds"),
    )
    directory = Text(
        load_default="/run/secrets",
        filled=True,
        metadata=about("Folder of the scheduler's machine with the files of file: sources, one value each."),
    )


class VaultSection(Section):
    address = Text(
        load_default="",
        metadata=about("HashiCorp Vault, for vault: sources; empty: none.", examples=["https://vault:8200"]),
    )
    namespace = Text(load_default="", metadata=about("Its namespace (Vault Enterprise)."))
    ca_file = Text(
        load_default="", metadata=about("Certificates of the authorities to trust; empty: those that requests trusts.")
    )
    token = Text(
        load_default="env:VAULT_TOKEN",
        filled=True,
        metadata=about(f"Where its token is, {_SOURCE}, unless role_id is set."),
    )
    role_id = Text(load_default="", metadata=about("Log in with this AppRole instead."))
    secret_id = Text(
        load_default="env:VAULT_SECRET_ID", filled=True, metadata=about(f"Where the AppRole's secret id is, {_SOURCE}.")
    )


class DcosSection(Section):
    url = Text(
        load_default="",
        metadata=about(
            "Address of DC/OS, for its secret store; empty: where the service account logs in.",
            examples=["https://leader.mesos"],
        ),
    )
    ca_file = Text(
        load_default="",
        metadata=about("Certificates of DC/OS' own authority, for login and secret store; empty: tls.ca_file."),
    )
