"""`service`: what concerns the service as a whole, and what its jobs share."""

from __future__ import annotations

from tf_scheduler.model.spec import Strategy
from tf_scheduler.options.fields import Number, Text

from .base import Change, Section, about
from .network import NetworkOptions
from .program import ProgramOptions
from .storage import StorageOptions

#: Without what ends a line, or is no character.
_LINE, _ONE_LINE = r"[^\x00-\x1f\x7f]+", "one line, without control characters"
#: As passwd(5) can hold it: neither an option nor a path.
_USER = r"[^\x00-\x20\x7f:/-][^\x00-\x20\x7f:/]*"

LOG_LEVELS = ("OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE", "ALL")


class IdentityOptions(Section):
    """Part of `service`: who it is to Mesos and to people."""

    name = Text(
        load_default="tensorflow",
        filled=True,
        metadata=about(
            "Name of the service; also of the Marathon app and of the framework. Folders are parted by '/'.",
            change=Change.FIXED,
            environment="FRAMEWORK_NAME",
            required=True,
            examples=["mnist", "dev/team/mnist"],
        ),
    )
    user = Text(
        load_default="nobody",
        filled=True,
        pattern=_USER,
        wanted="the name of a user, without white space, ':', '/' and a '-' before it",
        metadata=about(
            "Operating system user of the tasks on the agents.",
            change=Change.FIXED,
            environment="FRAMEWORK_USER",
            required=True,
        ),
    )
    role = Text(
        load_default="",
        metadata=about("Mesos role; empty: <name>-role, with '/' written as '__'.", change=Change.FIXED),
    )
    region = Text(
        load_default="",
        metadata=about(
            "Region of all tasks; empty: that of the Mesos master.",
            change=Change.FIXED,
            media="application/x-region+string",
        ),
    )
    principal = Text(
        load_default="",
        pattern=_LINE,
        wanted=_ONE_LINE,
        metadata=about("Mesos principal; empty: service_account, and without that none.", change=Change.FIXED),
    )
    service_account = Text(
        load_default="",
        pattern=_LINE,
        wanted=_ONE_LINE,
        metadata=about(
            "DC/OS service account; its id is the Mesos principal.",
            change=Change.FIXED,
            environment="FRAMEWORK_PRINCIPAL",
        ),
    )
    service_account_secret = Text(
        load_default="",
        metadata=about(
            "Path of the secret that holds the service account's private key. The scheduler gets it as "
            "DCOS_SERVICE_ACCOUNT_CREDENTIAL, and logs in to DC/OS with it.",
        ),
    )
    strategy = Text(
        load_default=Strategy.BETWEEN_GRAPH.value,
        choices=[item.value for item in Strategy],
        metadata=about("How the program distributes its training.", change=Change.FIXED),
    )
    failover_timeout = Number(
        load_default=604_800.0,
        most=31_536_000.0,
        unit="seconds",
        metadata=about("How long Mesos keeps the tasks of a scheduler that is gone.", "seconds"),
    )
    log_level = Text(
        load_default="INFO",
        choices=LOG_LEVELS,
        metadata=about("How much the scheduler logs.", environment="FRAMEWORK_LOG_LEVEL"),
    )
    log_format = Text(
        load_default="console",
        choices=("console", "json"),
        metadata=about("How it writes that: lines for people, or a JSON object a line (docs/metrics.md)."),
    )
    mesos_api_version = Text(
        load_default="V1",
        choices=("V0", "V1"),
        metadata=about(
            "Version of the Mesos API.",
            environment="MESOS_API_VERSION",
            obsolete="the scheduler speaks version 1 only",
        ),
    )


class ServiceSection(NetworkOptions, StorageOptions, ProgramOptions, IdentityOptions):
    """marshmallow takes the fields of the last base first."""
