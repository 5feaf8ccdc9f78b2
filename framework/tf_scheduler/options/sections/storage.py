"""Storage that all tasks of the service share, and access to it."""

from __future__ import annotations

from tf_scheduler.options.fields import Flag, Text, Whole

from .base import Change, Section, about, section

_KERBEROS = "no keytab reaches the tasks"


class HdfsSection(Section):
    config_uri = Text(
        load_default="",
        metadata=about(
            "Address of the folder of core-site.xml and hdfs-site.xml. Every task fetches both into its working "
            "directory and sees it as HADOOP_CONF_DIR. Empty: none.",
            change=Change.RESTART,
            environment="HDFS_CONFIG_URI",
            examples=["http://api.hdfs.marathon.l4lb.thisdcos.directory/v1/endpoints"],
        ),
    )


class KdcSection(Section):
    hostname = Text(
        load_default=None,
        allow_none=False,
        metadata=about("Its host.", not_yet=_KERBEROS),
    )
    port = Whole(
        load_default=None,
        allow_none=False,
        least=1,
        most=65_535,
        metadata=about("Its port.", examples=[88], not_yet=_KERBEROS),
    )


class KerberosSection(Section):
    enabled = Flag(load_default=False, metadata=about("Use Kerberos for HDFS.", not_yet=_KERBEROS))
    kdc = section(KdcSection, "The key distribution centre.")
    primary = Text(
        load_default="tensorflow", metadata=about("First part of the principal: primary@realm.", not_yet=_KERBEROS)
    )
    realm = Text(
        load_default=None, allow_none=False, metadata=about("Second part of the principal.", not_yet=_KERBEROS)
    )
    keytab_secret = Text(
        load_default=None,
        allow_none=False,
        metadata=about(
            "Path of the secret that holds the keytab.", examples=["__dcos_base64__keytab"], not_yet=_KERBEROS
        ),
    )
    debug = Flag(load_default=False, metadata=about("Let the clients log what Kerberos does.", not_yet=_KERBEROS))


class SecuritySection(Section):
    kerberos = section(KerberosSection, "Kerberos, for HDFS.")


class StorageOptions(Section):
    """Part of `service`."""

    checkpoint_dir = Text(
        load_default="",
        metadata=about(
            "Folder that all tasks share; they see it as CHECKPOINT_DIR. Empty: shared_filesystem.",
            change=Change.RESTART,
        ),
    )
    shared_filesystem = Text(
        load_default="",
        metadata=about(
            "The original package's name for checkpoint_dir.",
            change=Change.RESTART,
            environment="SHARED_FILESYSTEM",
            examples=["gs://bucket/path", "hdfs://default/path"],
        ),
    )
    hdfs = section(HdfsSection, "Access to HDFS.")
    gcs_key = Text(
        load_default="",
        metadata=about(
            "Key of a Google Cloud service account, JSON as text. Whoever may read the Marathon app can read it.",
            environment="GCS_KEY",
            secret=True,
            not_yet="no secret reaches the tasks",
        ),
    )
    use_gcs_key_secret = Flag(
        load_default=False,
        metadata=about(
            "Take that key from the secret /gcs_key.",
            environment="USE_GCS_KEY",
            not_yet="no secret reaches the tasks",
        ),
    )
    security = section(SecuritySection, "Identity towards storage.")
    use_tensorboard = Flag(
        load_default=False,
        metadata=about(
            "Run TensorBoard on the checkpoint folder.",
            environment="USE_TENSORBOARD",
            not_yet="no TensorBoard is started",
        ),
    )
