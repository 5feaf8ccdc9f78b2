"""`mesos`, `tls`, `metrics`: whom the scheduler talks to, and how."""

from __future__ import annotations

from tf_scheduler.options.fields import Flag, Text

from .base import Section, about


class MesosSection(Section):
    master = Text(
        load_default="zk://master.mesos:2181/mesos",
        filled=True,
        metadata=about(
            "The Mesos master: host:port, several of them with commas between, or zk://host:port/path.",
            examples=["10.0.0.1:5050"],
        ),
    )
    secret = Text(
        load_default="",
        metadata=about(
            "Where the secret of service.principal is, for masters with HTTP Basic authentication: env:NAME or "
            "file:NAME, as in secrets. Empty: none.",
            examples=["env:MESOS_SECRET"],
        ),
    )


class TlsSection(Section):
    """Files on the machine where the scheduler runs."""

    enabled = Flag(load_default=False, metadata=about("Talk to the Mesos master over https."))
    ca_file = Text(
        load_default="",
        metadata=about("Certificates of the authorities to trust, a file or a folder; empty: those of the system."),
    )
    certificate_file = Text(load_default="", metadata=about("Certificate that the scheduler shows; empty: none."))
    key_file = Text(load_default="", metadata=about("Its private key."))


class MetricsSection(Section):
    statsd = Text(
        load_default="",
        metadata=about(
            "host:port of a StatsD server that gets the scheduler's metrics; empty: the one that DC/OS names, if any.",
            examples=["127.0.0.1:8125"],
        ),
    )
