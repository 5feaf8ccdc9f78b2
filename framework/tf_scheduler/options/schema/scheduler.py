"""Schema of `scheduler`, `executor`, `api`, `mesos`, `tls` and `metrics`."""

from __future__ import annotations

from .fields import Boolean, Integer, Number, OnUpdate, Section, String, option_metadata


class SchedulerSection(Section):
    cpus = Number(
        load_default=0.5,
        minimum=0.01,
        maximum=64.0,
        unit="cores",
        metadata=option_metadata("CPUs of the scheduler.", "cores"),
    )
    mem = Integer(
        load_default=512, minimum=128, maximum=65_536, metadata=option_metadata("Memory of the scheduler.", "MB")
    )
    containerized = Boolean(
        load_default=True,
        metadata=option_metadata("Run the scheduler in a container image; false: with the agent's own Python."),
    )
    image = String(
        load_default="",
        metadata=option_metadata(
            "Container image of the scheduler (Python 3.12 or newer). Default: the image named in the package.",
            examples=["python:3.13-slim-bookworm"],
        ),
    )
    python = String(
        load_default="python3",
        non_empty=True,
        # Marathon inserts the value into a shell command.
        pattern=r"[A-Za-z0-9_./][A-Za-z0-9_./+@:-]*",
        expected="a name or a path without white space and shell metacharacters",
        metadata=option_metadata("Python interpreter of the scheduler, in the image or on the agent."),
    )
    state = String(
        load_default="zk://master.mesos:2181",
        non_empty=True,
        metadata=option_metadata(
            "State store: zk://host:port,host:port/path for ZooKeeper, or file:///folder/state.db for a local file.",
            on_update=OnUpdate.REJECTED,
            examples=["zk://10.0.0.1:2181,10.0.0.2:2181/mesos-frameworks"],
        ),
    )


class ExecutorSection(Section):
    url = String(load_default="", metadata=option_metadata("URL of the executor's bundle, which agents fetch."))
    python = String(
        load_default="python3",
        non_empty=True,
        metadata=option_metadata("Python interpreter of the executor on the agents (3.8 or newer)."),
    )
    cpus = Number(
        load_default=0.1, minimum=0.01, maximum=64.0, metadata=option_metadata("CPUs of each executor.", "cores")
    )
    output_bytes = Integer(
        load_default=32 << 20,
        minimum=1 << 16,
        maximum=1 << 40,
        metadata=option_metadata(
            "Maximum size of a task's standard output file, and of its standard error file, before rotation.", "bytes"
        ),
    )
    output_backups = Integer(
        load_default=3, maximum=100, metadata=option_metadata("Number of rotated files to keep of each output.")
    )
    mem = Integer(
        load_default=64, minimum=32, maximum=65_536, metadata=option_metadata("Memory of each executor.", "MB")
    )


class ApiSection(Section):
    authentication = String(
        load_default="auto",
        choices=("auto", "none"),
        metadata=option_metadata(
            "Access to the API. auto: a configured token or certificate is required; without one, the API "
            "listens only on loopback and under Marathon. none: every client has full access."
        ),
    )
    read_token = String(
        load_default="",
        metadata=option_metadata(
            "Source of the read-only token, as env:NAME or file:NAME; empty: none.", examples=["env:API_READ_TOKEN"]
        ),
    )
    write_token = String(
        load_default="",
        metadata=option_metadata(
            "Source of the read-write token, as env:NAME or file:NAME; empty: none.", examples=["file:api-token"]
        ),
    )
    certificate_file = String(
        load_default="", metadata=option_metadata("TLS certificate of the API, which enables HTTPS; empty: HTTP.")
    )
    key_file = String(load_default="", metadata=option_metadata("Private key of api.certificate_file."))
    client_ca_file = String(
        load_default="",
        metadata=option_metadata("Authorities whose client certificates grant access to the API; empty: none."),
    )
    writers = String(
        load_default="",
        metadata=option_metadata(
            "Common names of client certificates with write access, separated by commas; empty: all.",
            examples=["alice,ci"],
        ),
    )


class MesosSection(Section):
    master = String(
        load_default="zk://master.mesos:2181/mesos",
        non_empty=True,
        metadata=option_metadata(
            "Mesos master: host:port, several separated by commas, or zk://host:port/path.",
            examples=["10.0.0.1:5050"],
        ),
    )
    secret = String(
        load_default="",
        metadata=option_metadata(
            "Source of the secret of service.principal, as env:NAME or file:NAME, for masters with HTTP "
            "Basic authentication; empty: none.",
            examples=["env:MESOS_SECRET"],
        ),
    )


class TlsSection(Section):
    enabled = Boolean(load_default=False, metadata=option_metadata("Connect to the Mesos master over HTTPS."))
    ca_file = String(
        load_default="",
        metadata=option_metadata("Trusted authorities, a file or a folder; empty: the authorities of the system."),
    )
    certificate_file = String(
        load_default="", metadata=option_metadata("Client certificate of the scheduler; empty: none.")
    )
    key_file = String(load_default="", metadata=option_metadata("Private key of tls.certificate_file."))


class MetricsSection(Section):
    statsd = String(
        load_default="",
        metadata=option_metadata(
            "StatsD server for the scheduler's metrics, as host:port; empty: the server named by DC/OS, if any.",
            examples=["127.0.0.1:8125"],
        ),
    )
