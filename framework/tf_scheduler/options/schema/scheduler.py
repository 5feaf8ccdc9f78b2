"""Schema of `scheduler`, `executor`, `api`, `mesos`, `tls` and `metrics`."""

from __future__ import annotations

from .fields import Boolean, Cores, Integer, OnUpdate, Section, String


class SchedulerSection(Section):
    cpus = Cores("CPUs of the scheduler.", 0.5, maximum=64.0)
    mem = Integer("Memory of the scheduler.", 512, minimum=128, maximum=65_536, unit="MB")
    containerized = Boolean("Run the scheduler in a container image; false: with the agent's own Python.", default=True)
    image = String(
        "Container image of the scheduler (Python 3.12 or newer); empty: the image named in the package.",
        examples=["python:3.13-slim-bookworm"],
    )
    # Marathon inserts the value into a shell command.
    python = String(
        "Python interpreter of the scheduler, in the image or on the agent.",
        "python3",
        non_empty=True,
        pattern=r"[A-Za-z0-9_./][A-Za-z0-9_./+@:-]*",
        expected="a name or a path without white space and shell metacharacters",
    )
    state = String(
        "State store: zk://host:port,host:port/path for ZooKeeper, or file:///folder/state.db for a local file.",
        "zk://master.mesos:2181",
        non_empty=True,
        update=OnUpdate.REJECTED,
        examples=["zk://10.0.0.1:2181,10.0.0.2:2181/mesos-frameworks"],
    )


class ExecutorSection(Section):
    url = String("URL of the executor's bundle, which agents fetch; empty: the bundle of the package.")
    python = String("Python interpreter of the executor on the agents (3.8 or newer).", "python3", non_empty=True)
    cpus = Cores("CPUs of each executor.", 0.1, maximum=64.0)
    output_bytes = Integer(
        "Maximum size of a task's standard output file, and of its standard error file, before rotation.",
        32 << 20,
        minimum=1 << 16,
        maximum=1 << 40,
        unit="bytes",
    )
    output_backups = Integer("Number of rotated files to keep of each output.", 3, maximum=100)
    mem = Integer("Memory of each executor.", 64, minimum=32, maximum=65_536, unit="MB")


class ApiSection(Section):
    authentication = String(
        "Access to the API. auto: clients need a configured token or certificate; if none is configured, the API "
        "starts only on loopback and under Marathon. none: every client has full access.",
        "auto",
        choices=("auto", "none"),
    )
    read_token = String(
        "Source of the read-only token, as env:NAME or file:NAME; empty: none.", examples=["env:API_READ_TOKEN"]
    )
    write_token = String(
        "Source of the read-write token, as env:NAME or file:NAME; empty: none.", examples=["file:api-token"]
    )
    certificate_file = String("TLS certificate of the API, which enables HTTPS; empty: HTTP.")
    key_file = String("Private key of api.certificate_file.")
    client_ca_file = String("Authorities whose client certificates grant access to the API; empty: none.")
    writers = String(
        "Common names of client certificates with write access, separated by commas; empty: all.", examples=["alice,ci"]
    )


class MesosSection(Section):
    master = String(
        "Mesos master: host:port, several separated by commas, or zk://host:port/path.",
        "zk://master.mesos:2181/mesos",
        non_empty=True,
        examples=["10.0.0.1:5050"],
    )
    secret = String(
        "Source of the secret of service.principal, as env:NAME or file:NAME, for masters with HTTP Basic "
        "authentication; empty: none.",
        examples=["env:MESOS_SECRET"],
    )


class TlsSection(Section):
    enabled = Boolean("Connect to the Mesos master over HTTPS.")
    ca_file = String("Trusted authorities, a file or a folder; empty: the authorities of the system.")
    certificate_file = String("Client certificate of the scheduler; empty: none.")
    key_file = String("Private key of tls.certificate_file.")


class MetricsSection(Section):
    statsd = String(
        "StatsD server for the scheduler's metrics, as host:port; empty: the server named by DC/OS, if any.",
        examples=["127.0.0.1:8125"],
    )
