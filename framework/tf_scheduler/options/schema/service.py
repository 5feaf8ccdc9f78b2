"""Schema of `service`: identity, program, storage and network."""

from __future__ import annotations

from tf_scheduler.model.spec import Strategy

from .fields import Boolean, Environment, Integer, Number, OnUpdate, Section, String, option_metadata, section
from .placement import NetworkOptions

#: Images of the original package: TensorFlow 1.5, without the executor's Python (3.8 or newer).
ORIGINAL_IMAGE = "mesosphere/dcos-tensorflow:0.0.3-1.5.0"
ORIGINAL_GPU_IMAGE = "mesosphere/dcos-tensorflow:0.0.3-1.5.0-gpu"


class ProgramOptions(Section):
    """Program options of `service`."""

    command = String(
        load_default="",
        metadata=option_metadata(
            "Shell command line of every task without a command of its own.",
            on_update=OnUpdate.RESTART,
            examples=['python train.py --model-dir "$CHECKPOINT_DIR"'],
        ),
    )
    job_url = String(
        load_default="",
        metadata=option_metadata(
            "File to fetch into every task's working directory; archives are extracted. Agents fetch "
            "http, https, ftp and file URLs; the task's Python fetches all others, for example s3, gs and "
            "hdfs, with fsspec. Empty: none.",
            on_update=OnUpdate.RESTART,
            environment="JOB_URL",
            required=True,
            examples=["https://example.com/jobs/mnist.zip", "train.py"],
        ),
    )
    data = String(
        load_default="",
        metadata=option_metadata(
            "URLs of files to fetch into every task's working directory, separated by commas; http, "
            "https, ftp or file. Each agent fetches a file once and caches it; archives are extracted. "
            "Empty: none.",
            on_update=OnUpdate.RESTART,
            examples=["http://example.com/data/mnist.tgz"],
        ),
    )
    data_cache = Boolean(
        load_default=True,
        metadata=option_metadata(
            "Cache the files of data on the agents. A cached file is never refreshed. false: every task "
            "fetches the files again.",
            on_update=OnUpdate.RESTART,
        ),
    )
    job_path = String(
        load_default="",
        metadata=option_metadata(
            "Folder in the job's archive that contains the module job_name.",
            on_update=OnUpdate.RESTART,
            environment="JOB_PATH",
        ),
    )
    job_name = String(
        load_default="",
        metadata=option_metadata(
            "Module, without .py, whose main(server, log_dir, context) is called by tasks without a command.",
            on_update=OnUpdate.RESTART,
            environment="JOB_NAME",
            required=True,
        ),
    )
    job_context = String(
        load_default="{}",
        metadata=option_metadata(
            "JSON object, as text, passed to main as context.",
            on_update=OnUpdate.RESTART,
            environment="JOB_CONTEXT",
            examples=['{"learning_rate": 0.5}'],
        ),
    )
    environment = Environment(
        load_default=dict,
        metadata=option_metadata(
            "Environment variables of every task. Outside DC/OS an object of names and values is accepted, too.",
            on_update=OnUpdate.RESTART,
            examples=[[{"name": "TF_CPP_MIN_LOG_LEVEL", "value": "2"}]],
        ),
    )
    python = String(
        load_default="",
        metadata=option_metadata(
            "Python interpreter that `python` runs in commands; empty: the executor's interpreter.",
            on_update=OnUpdate.RESTART,
        ),
    )
    tf_image = String(
        load_default=ORIGINAL_IMAGE,
        metadata=option_metadata(
            "Docker image of tasks without GPUs, run by the Mesos containerizer; it needs Python 3.8 or "
            "newer. The default means no image: tasks run in the agent's file system.",
            on_update=OnUpdate.RESTART,
            environment="TF_IMAGE",
            required=True,
        ),
    )
    gpu_tf_image = String(
        load_default=ORIGINAL_GPU_IMAGE,
        metadata=option_metadata(
            "Docker image of tasks with GPUs, run by the Mesos containerizer; it needs Python 3.8 or "
            "newer. The default means no image.",
            on_update=OnUpdate.RESTART,
            environment="GPU_TF_IMAGE",
            required=True,
        ),
    )


class HdfsSection(Section):
    config_uri = String(
        load_default="",
        metadata=option_metadata(
            "URL of the folder with core-site.xml and hdfs-site.xml. Every task fetches both files into "
            "its working directory, named by HADOOP_CONF_DIR. Empty: none.",
            on_update=OnUpdate.RESTART,
            environment="HDFS_CONFIG_URI",
            examples=["http://api.hdfs.marathon.l4lb.thisdcos.directory/v1/endpoints"],
        ),
    )


class KdcSection(Section):
    hostname = String(
        load_default=None,
        allow_none=False,
        metadata=option_metadata("Host of the key distribution centre."),
    )
    port = Integer(
        load_default=None,
        allow_none=False,
        minimum=1,
        maximum=65_535,
        metadata=option_metadata("Port of the key distribution centre.", examples=[88]),
    )


class KerberosSection(Section):
    enabled = Boolean(
        load_default=False,
        metadata=option_metadata(
            "Give tasks a Kerberos keytab and configuration, for example for kinit in pre_command (docs/secrets.md)."
        ),
    )
    kdc = section(KdcSection, "The key distribution centre.")
    primary = String(load_default="tensorflow", metadata=option_metadata("First part of the principal: primary@realm."))
    realm = String(load_default=None, allow_none=False, metadata=option_metadata("Second part of the principal."))
    keytab_secret = String(
        load_default=None,
        allow_none=False,
        metadata=option_metadata("Path of the secret that contains the keytab.", examples=["__dcos_base64__keytab"]),
    )
    debug = Boolean(load_default=False, metadata=option_metadata("Log Kerberos client activity to standard error."))


class SecuritySection(Section):
    kerberos = section(KerberosSection, "Kerberos, for HDFS.")


class StorageOptions(Section):
    """Storage options of `service`."""

    checkpoint_dir = String(
        load_default="",
        metadata=option_metadata(
            "Folder shared by all tasks, available as CHECKPOINT_DIR; empty: shared_filesystem.",
            on_update=OnUpdate.RESTART,
        ),
    )
    shared_filesystem = String(
        load_default="",
        metadata=option_metadata(
            "Name of checkpoint_dir in the original package.",
            on_update=OnUpdate.RESTART,
            environment="SHARED_FILESYSTEM",
            examples=["gs://bucket/path", "hdfs://default/path"],
        ),
    )
    hdfs = section(HdfsSection, "Access to HDFS.")
    gcs_key = String(
        load_default="",
        metadata=option_metadata(
            "Key of a Google Cloud service account, JSON as text. Tasks get the key as a file named by "
            "GOOGLE_APPLICATION_CREDENTIALS. Users with read access to the Marathon app can read the key.",
            environment="GCS_KEY",
            secret=True,
        ),
    )
    use_gcs_key_secret = Boolean(
        load_default=False,
        metadata=option_metadata(
            "Read the Google Cloud key from the secret /gcs_key.",
            environment="USE_GCS_KEY",
        ),
    )
    security = section(SecuritySection, "Identity towards storage.")
    use_tensorboard = Boolean(
        load_default=False,
        metadata=option_metadata(
            "Run TensorBoard on the checkpoint folder.",
            on_update=OnUpdate.SCALE,
            environment="USE_TENSORBOARD",
        ),
    )


#: One line without control characters.
_LINE, _ONE_LINE = r"[^\x00-\x1f\x7f]+", "one line, without control characters"
#: User names of passwd(5) that are neither an option nor a path.
_USER = r"[^\x00-\x20\x7f:/-][^\x00-\x20\x7f:/]*"

LOG_LEVELS = ("OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE", "ALL")


class IdentityOptions(Section):
    """Identity options of `service`."""

    name = String(
        load_default="tensorflow",
        non_empty=True,
        metadata=option_metadata(
            "Name of the service, of its Marathon app and of its framework; folders are separated by '/'.",
            on_update=OnUpdate.REJECTED,
            environment="FRAMEWORK_NAME",
            required=True,
            examples=["mnist", "dev/team/mnist"],
        ),
    )
    user = String(
        load_default="nobody",
        non_empty=True,
        pattern=_USER,
        expected="a user name without white space, ':', '/' and a leading '-'",
        metadata=option_metadata(
            "Operating system user of the tasks on the agents.",
            on_update=OnUpdate.REJECTED,
            environment="FRAMEWORK_USER",
            required=True,
        ),
    )
    role = String(
        load_default="",
        metadata=option_metadata(
            "Mesos role; empty: <name>-role, with '/' written as '__'.", on_update=OnUpdate.REJECTED
        ),
    )
    region = String(
        load_default="",
        metadata=option_metadata(
            "Region of all tasks; empty: the region of the Mesos master.",
            on_update=OnUpdate.REJECTED,
            media="application/x-region+string",
        ),
    )
    principal = String(
        load_default="",
        pattern=_LINE,
        expected=_ONE_LINE,
        metadata=option_metadata("Mesos principal; empty: service_account, if any.", on_update=OnUpdate.REJECTED),
    )
    service_account = String(
        load_default="",
        pattern=_LINE,
        expected=_ONE_LINE,
        metadata=option_metadata(
            "DC/OS service account; its id is the Mesos principal.",
            on_update=OnUpdate.REJECTED,
            environment="FRAMEWORK_PRINCIPAL",
        ),
    )
    service_account_secret = String(
        load_default="",
        metadata=option_metadata(
            "Path of the secret with the private key of the service account, for the scheduler's DC/OS "
            "login. The scheduler gets the key as DCOS_SERVICE_ACCOUNT_CREDENTIAL.",
        ),
    )
    strategy = String(
        load_default=Strategy.BETWEEN_GRAPH.value,
        choices=[item.value for item in Strategy],
        metadata=option_metadata("Distribution strategy of the training program.", on_update=OnUpdate.REJECTED),
    )
    failover_timeout = Number(
        load_default=604_800.0,
        maximum=31_536_000.0,
        unit="seconds",
        metadata=option_metadata("Time for which Mesos keeps the tasks of a disconnected scheduler.", "seconds"),
    )
    log_level = String(
        load_default="INFO",
        choices=LOG_LEVELS,
        metadata=option_metadata("Log level of the scheduler.", environment="FRAMEWORK_LOG_LEVEL"),
    )
    log_format = String(
        load_default="console",
        choices=("console", "json"),
        metadata=option_metadata(
            "Log format of the scheduler. console: plain lines; json: one JSON object per line (docs/metrics.md)."
        ),
    )
    mesos_api_version = String(
        load_default="V1",
        choices=("V0", "V1"),
        metadata=option_metadata(
            "Version of the Mesos API.",
            environment="MESOS_API_VERSION",
            obsolete="the scheduler speaks version 1 only",
        ),
    )


class ServiceSection(NetworkOptions, StorageOptions, ProgramOptions, IdentityOptions):
    """All options of `service`; marshmallow lists the fields of the last base first."""
