"""What of TonY is not taken along, by the begin of its name, and what is not in its file at all."""

from __future__ import annotations

from .mapping import Row

OF_HADOOP = "it is about YARN and Hadoop"
_OF_PORTAL = "past runs are in `dcos-tensorflow history`"
PLANS = "say the order with a plan of your own (docs/plans.md)"
#: Begin of a name -> why nothing that begins so is taken along.
PREFIXES = {
    "tony.docker.": "there is no job like it",
    "tony.am.": "the scheduler is started by Marathon with the resources of its app",
    "tony.task.": "executors here have no heartbeats of their own: Mesos watches them",
    "tony.history.": _OF_PORTAL,
    "tony.portal.": _OF_PORTAL,
    "tony.https.": _OF_PORTAL,
    "tony.http.": _OF_PORTAL,
    "tony.keytab.": _OF_PORTAL,
    "tony.secret.": _OF_PORTAL,
    "tony.horovod.": "there is no Horovod driver to test",
    "tony.other.": OF_HADOOP,
    "tony.application.mxnet.": "the variables that MXNet needs are not made here; see docs/tasks.md",
    "tony.application.dependency.": PLANS,
    "tony.application.": OF_HADOOP,
    "tony.gpu-exec-path": "GPUs are those of the offer",
    "tony.version-info.": "it is about TonY itself",
    "yarn.": OF_HADOOP,
    "hadoop.": OF_HADOOP,
    "dfs.": OF_HADOOP,
}
#: Arguments of TonY's command line, which are not in its file: for the page only.
ARGUMENTS = (
    Row("--executes, --task_params", ("service.command",), "`convert --command 'python train.py --steps 1000'`"),
    Row("--src_dir", ("service.job_url",), "pack the folder as a zip or tgz and say where it is"),
    Row(
        "--python_venv, --python_binary_path",
        ("service.python",),
        "a path on the agents, or runtime:NAME",
    ),
    Row("--container_env, --shell_env", ("service.environment",), ""),
    Row("--hdfs_classpath", (), OF_HADOOP),
)
