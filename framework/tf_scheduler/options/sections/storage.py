"""Storage that all tasks of the service share, and access to it."""

from __future__ import annotations

from tf_scheduler.options.fields import Flag, Text, Whole

from .base import Change, Section, about, section


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
        metadata=about("Its host."),
    )
    port = Whole(
        load_default=None,
        allow_none=False,
        least=1,
        most=65_535,
        metadata=about("Its port.", examples=[88]),
    )


class KerberosSection(Section):
    enabled = Flag(
        load_default=False,
        metadata=about(
            "Give tasks keytab and configuration for Kerberos; a pre_command can then call kinit (docs/secrets.md)."
        ),
    )
    kdc = section(KdcSection, "The key distribution centre.")
    primary = Text(load_default="tensorflow", metadata=about("First part of the principal: primary@realm."))
    realm = Text(load_default=None, allow_none=False, metadata=about("Second part of the principal."))
    keytab_secret = Text(
        load_default=None,
        allow_none=False,
        metadata=about("Path of the secret that holds the keytab.", examples=["__dcos_base64__keytab"]),
    )
    debug = Flag(load_default=False, metadata=about("Let the clients log what Kerberos does, to stderr."))


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
            "Key of a Google Cloud service account, JSON as text; tasks get it as a file, and its path in "
            "GOOGLE_APPLICATION_CREDENTIALS. Whoever may read the Marathon app can read it.",
            environment="GCS_KEY",
            secret=True,
        ),
    )
    use_gcs_key_secret = Flag(
        load_default=False,
        metadata=about(
            "Take that key from the secret /gcs_key.",
            environment="USE_GCS_KEY",
        ),
    )
    security = section(SecuritySection, "Identity towards storage.")
    use_tensorboard = Flag(
        load_default=False,
        metadata=about(
            "Run TensorBoard on the checkpoint folder.",
            change=Change.SCALE,
            environment="USE_TENSORBOARD",
        ),
    )
