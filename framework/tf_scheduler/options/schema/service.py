"""Schema of `service`: identity, program, storage and network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from marshmallow import ValidationError

from tf_executor.contract.strategies import Strategy
from tf_scheduler.model.digests import DIGEST_EXPECTED, DIGEST_PATTERN, is_data_list, split_data

from .fields import (
    Boolean,
    Environment,
    Integer,
    OnUpdate,
    RecordList,
    Seconds,
    Section,
    String,
    mismatch,
    section,
)
from .jobs import names_program
from .queue import LINE, ONE_LINE
from .values import Document

#: Default images of the original package: without GPUs, with GPUs, and those of its earlier releases. They contain
#: TensorFlow 1.3 to 1.5, and lack the executor's Python (3.8 or newer).
ORIGINAL_IMAGES = tuple(
    f"mesosphere/dcos-tensorflow:{tag}"
    for tag in ("0.0.3-1.5.0", "0.0.3-1.5.0-gpu", "2.7.4-1.3.0", "2.7.4-1.3.0-gpu", "v1.3", "v1.3-gpu")
)

#: Before the name of a runtime of this machine, whose interpreter the option `python` means on the local cluster.
RUNTIME_PREFIX = "runtime:"


class DataRecord(Section):
    """Schema of an entry of `service.data`."""

    url = String("URL, or path in local runs.", required=True, non_empty=True, parse=split_data)
    path = String("Path below the working directory; empty: the file's name.")
    extract = Boolean("Extract an archive into its folder.", default=True)
    link = Boolean("Link the agent's own file, for a file URL; do not copy it.")


class DataFiles(String):
    """Comma-separated URLs, or a list of URLs or `DataRecord`, as JSON text.

    On DC/OS the list is written as JSON text, because an option of config.json has only one type.
    """

    records = RecordList(DataRecord, "")

    def _deserialize(self, value: object, *args: Any, **options: Any) -> str:
        if isinstance(value, str) and is_data_list(value):
            try:
                value = json.loads(value)
                json.dumps(value, ensure_ascii=False).encode()  # Mesos requires UTF-8
            except (ValueError, RecursionError) as error:
                raise ValidationError(f"must be URLs, or a list of objects as JSON: {error}") from error
        if isinstance(value, str):
            return super()._deserialize(value, *args, **options)
        if not isinstance(value, list):
            raise mismatch('text or a list of {"url": ..., "path": ...}', value)
        try:
            records = [{"url": each} if isinstance(each, str) else each for each in value]
            return json.dumps(self.records.deserialize(records)) if value else ""
        except ValidationError as error:  # omit its valid part, which is a list
            raise ValidationError(error.messages) from error


class ProgramOptions(Section):
    """Program options of `service`."""

    command = String(
        "Shell command line of tasks whose job sets none; empty: tasks run the module that service.job_name names.",
        update=OnUpdate.RESTART,
        examples=['python train.py --model-dir "$CHECKPOINT_DIR"'],
    )
    job_url = String(
        "File to fetch into every task's working directory; archives are extracted. Agents fetch http, https, ftp "
        "and file URLs; the task's Python fetches all others, for example s3, gs and hdfs, with fsspec. Local runs "
        "also take a path, and pack a folder. Empty: none.",
        update=OnUpdate.RESTART,
        variable="JOB_URL",
        # A digest after the URL, as in service.data, would be ignored.
        pattern="[^#]*",
        expected="a URL or path without `#` (the digest belongs in service.job_sha256)",
        form_required=True,
        examples=["https://example.com/jobs/mnist.zip", "train.py"],
    )
    job_sha256 = String(
        "SHA-256 digest of the file of service.job_url, in hexadecimal. A task whose file has another digest fails "
        "before anything of the file is extracted or run. Empty: no check.",
        update=OnUpdate.RESTART,
        pattern=DIGEST_PATTERN,
        expected=DIGEST_EXPECTED,
    )
    data = DataFiles(
        "Files to fetch into every task's working directory: URLs (http, https, ftp or file) separated by commas, or "
        "a list of URLs, or of objects with url, path (empty: the file's name), extract (default: true) and link "
        "(docs/reference/jobs.md); in DC/OS, write the list as text. #sha256=DIGEST after a URL checks the file like "
        "service.job_sha256. Each agent fetches a file once and caches it; archives are extracted. Local runs also "
        "take paths, and link folders. Empty: none.",
        update=OnUpdate.RESTART,
        parse=split_data,
        examples=["http://example.com/data/mnist.tgz", [{"url": "mnist.npz", "path": ".keras/datasets/mnist.npz"}]],
        title="Data files",
    )
    data_cache = Boolean(
        "Cache the files of service.data on the agents. A cached file is never refreshed. false: every task fetches "
        "the files again.",
        default=True,
        update=OnUpdate.RESTART,
        title="Cache data files",
    )
    job_path = String(
        "Folder in the job's archive with the module that service.job_name names; empty: the top folder.",
        update=OnUpdate.RESTART,
        variable="JOB_PATH",
    )
    job_name = String(
        "Module (without .py) whose main(server, log_dir, context) is run by tasks without a command. Empty: none.",
        update=OnUpdate.RESTART,
        variable="JOB_NAME",
        form_required=True,
        title="Job module",
    )
    job_context = String(
        "JSON object, as text: argument `context` for main in the module that service.job_name names.",
        "{}",
        update=OnUpdate.RESTART,
        variable="JOB_CONTEXT",
        examples=['{"learning_rate": 0.5}'],
    )
    environment = Environment(
        "Environment variables of every task, as a list of objects with name and value.",
        update=OnUpdate.RESTART,
        examples=[[{"name": "TF_CPP_MIN_LOG_LEVEL", "value": "2"}]],
    )
    python = String(
        "Interpreter that `python` starts in commands; empty: the executor's interpreter.", update=OnUpdate.RESTART
    )
    tf_image = String(
        "Docker image of tasks without GPUs, run by the Mesos containerizer. The image needs Python 3.8 or newer. "
        "With the default value, as with an empty one, tasks have no image and run on the agent's own Python.",
        ORIGINAL_IMAGES[0],
        update=OnUpdate.RESTART,
        variable="TF_IMAGE",
        form_required=True,
    )
    gpu_tf_image = String(
        "Docker image of tasks with GPUs, run by the Mesos containerizer. The image needs Python 3.8 or newer. With "
        "the default value, as with an empty one, tasks have no image and run on the agent's own Python.",
        ORIGINAL_IMAGES[1],
        update=OnUpdate.RESTART,
        variable="GPU_TF_IMAGE",
        form_required=True,
    )


class HdfsSection(Section):
    config_uri = String(
        "URL of the folder with core-site.xml and hdfs-site.xml. Every task fetches both files into its working "
        "directory; HADOOP_CONF_DIR is the path of the directory. Empty: none.",
        update=OnUpdate.RESTART,
        variable="HDFS_CONFIG_URI",
        examples=["http://api.hdfs.marathon.l4lb.thisdcos.directory/v1/endpoints"],
    )


class KdcSection(Section):
    hostname = String("Host of the key distribution centre.", default=None)
    port = Integer("Port of the key distribution centre.", None, minimum=1, maximum=65_535, examples=[88])


class KerberosSection(Section):
    enabled = Boolean(
        "Give tasks a Kerberos keytab and configuration, for example for kinit in pre_command (docs/how-to/secrets.md)."
    )
    kdc = section(KdcSection, "The key distribution centre.")
    primary = String("First part of the Kerberos principal primary@realm.", "tensorflow")
    realm = String("Second part of the Kerberos principal primary@realm.", default=None)
    keytab_secret = String(
        "Path of the secret that contains the keytab.", default=None, examples=["__dcos_base64__keytab"]
    )
    debug = Boolean("Log Kerberos client activity to standard error.")


class SecuritySection(Section):
    kerberos = section(KerberosSection, "Kerberos, for HDFS.")


class StorageOptions(Section):
    """Storage options of `service`."""

    checkpoint_dir = String(
        "Folder for checkpoints (CHECKPOINT_DIR): a path that all agents share, or a URL, such as s3://bucket/run, "
        "whose use storage.mode describes. Empty: service.shared_filesystem.",
        update=OnUpdate.RESTART,
    )
    shared_filesystem = String(
        "Folder that all tasks share if checkpoint_dir is empty; the original package has only this option.",
        update=OnUpdate.RESTART,
        variable="SHARED_FILESYSTEM",
        examples=["/mnt/nfs/mnist", "gs://bucket/path"],
    )
    keep_files = Integer(
        "Maximum megabytes (2^20 bytes) of new files in the working directories of the tasks that are kept in "
        "CHECKPOINT_DIR/kept-files when a program ends, those of the leader first. 0: none.",
        1000,
        maximum=1_000_000,
    )
    hdfs = section(HdfsSection, "Access to HDFS.")
    gcs_key = String(
        "JSON key of a Google Cloud service account. Tasks get the key in a file whose path is in "
        "GOOGLE_APPLICATION_CREDENTIALS. Users with read access to the Marathon app can read the key. Empty: no key.",
        variable="GCS_KEY",
        secret=True,
    )
    use_gcs_key_secret = Boolean("Read the Google Cloud key from the secret /gcs_key.", variable="USE_GCS_KEY")
    security = section(SecuritySection, "Identity of the tasks for access to storage.")
    use_tensorboard = Boolean(
        "Run TensorBoard on the checkpoint folder.", update=OnUpdate.SCALE, variable="USE_TENSORBOARD"
    )


#: User names of passwd(5) that are neither an option nor a path.
_USER = r"[^\x00-\x20\x7f:/-][^\x00-\x20\x7f:/]*"

LOG_LEVELS = ("OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE", "ALL")


class IdentityOptions(Section):
    """Identity options of `service`."""

    name = String(
        "Name of the service, its Marathon app and its Mesos framework, with '/' between folders.",
        "tensorflow",
        non_empty=True,
        update=OnUpdate.REJECTED,
        variable="FRAMEWORK_NAME",
        form_required=True,
        examples=["mnist", "dev/team/mnist"],
    )
    user = String(
        "Operating system user of the tasks on the agents.",
        "nobody",
        non_empty=True,
        pattern=_USER,
        expected="a user name that contains no white space, ':' or '/', and does not start with '-'",
        update=OnUpdate.REJECTED,
        variable="FRAMEWORK_USER",
        form_required=True,
    )
    strategy = String(
        "Distribution strategy of the training program. Omitted: between_graph with service.job_name or with parameter "
        "servers; else independent for a single task, multi_worker_mirrored for several. A running service keeps its "
        "strategy.",
        None,
        choices=[strategy.value for strategy in Strategy],
        update=OnUpdate.REJECTED,
        title="Distribution strategy",
    )


#: Values of `service.kind`.
_JOB, _QUEUE = "job", "queue"


class AccountOptions(Section):
    """Kind, role, accounts and logs of `service`."""

    kind = String(
        "What the service runs. job: one job. queue: jobs that are submitted to it, in the order of the section queue; "
        "all other options are the defaults of its jobs.",
        _JOB,
        choices=(_JOB, _QUEUE),
        update=OnUpdate.REJECTED,
        title="Kind of service",
    )
    role = String("Mesos role of the service; empty: <name>-role, with '__' instead of '/'.", update=OnUpdate.REJECTED)
    region = String(
        "Region of all tasks; empty: the region of the Mesos master.",
        update=OnUpdate.REJECTED,
        media="application/x-region+string",
    )
    principal = String(
        "Mesos principal; empty: id of service_account.", pattern=LINE, expected=ONE_LINE, update=OnUpdate.REJECTED
    )
    service_account = String(
        "DC/OS service account; its id is the Mesos principal. Empty: none.",
        pattern=LINE,
        expected=ONE_LINE,
        update=OnUpdate.REJECTED,
        variable="FRAMEWORK_PRINCIPAL",
    )
    service_account_secret = String(
        "Path of the secret with the private key of the service account. The scheduler gets the key as "
        "DCOS_SERVICE_ACCOUNT_CREDENTIAL and logs in to DC/OS with it. Empty: no login."
    )
    failover_timeout = Seconds("Time for which tasks of a disconnected scheduler keep running.", 604_800.0)
    log_level = String("Log level of the scheduler.", "INFO", choices=LOG_LEVELS, variable="FRAMEWORK_LOG_LEVEL")
    log_format = String(
        "Log format of the scheduler. console: plain lines; json: one JSON object per line "
        "(docs/reference/metrics.md).",
        "console",
        choices=("console", "json"),
    )
    mesos_api_version = String(
        "Version of the Mesos API.",
        "V1",
        choices=("V0", "V1"),
        variable="MESOS_API_VERSION",
        obsolete="the scheduler speaks version 1 only",
    )


ADDRESSING = ("host", "named")


class NetworkOptions(Section):
    """Network options of `service`."""

    addressing = String(
        "Addresses of tasks. host: the agent's address and an offered port; named: a DC/OS name and port 2222. Tasks "
        "on a virtual network always use `named`.",
        ADDRESSING[0],
        choices=ADDRESSING,
        update=OnUpdate.REJECTED,
    )
    virtual_network_enabled = Boolean(
        "Give each task its own address on a virtual network.",
        update=OnUpdate.REJECTED,
        variable="ENABLE_VIRTUAL_NETWORK",
    )
    virtual_network_name = String(
        "Name of the virtual network.", "dcos", update=OnUpdate.REJECTED, variable="VIRTUAL_NETWORK_NAME"
    )
    virtual_network_plugin_labels = String(
        "Labels for the plugin of the virtual network, as k_0:v_0,k_1:v_1; empty: no labels.",
        update=OnUpdate.REJECTED,
        variable="VIRTUAL_NETWORK_PLUGIN_LABELS",
    )


class ServiceSection(AccountOptions, NetworkOptions, StorageOptions, ProgramOptions, IdentityOptions):
    """All options of `service`; marshmallow lists the fields of the last base first."""


def is_queue(document: Document) -> bool:
    """Whether the service runs a queue of jobs; the document may be invalid."""
    service = document.get("service")
    return isinstance(service, Mapping) and service.get("kind") == _QUEUE


def runs_check_job(document: Document) -> bool:
    """Whether no program is named for a job; the document may be invalid."""
    return not (is_queue(document) or names_program(document))
