"""TensorFlowOnSpark: it has no job file but a call, `TFCluster.run`, so there is a table for people only."""

from __future__ import annotations

from .mapping import Row

_FEEDING = "no data is fed: programs read it themselves; each finds its share by its index (docs/tasks.md)"

#: Arguments of TFCluster.run, and what a program finds in its `ctx` (tensorflowonspark/TFCluster.py, TFSparkNode.py).
ROWS = (
    Row("map_fun", ("service.job_name", "service.command"), "the program: a module with main, or a command"),
    Row("tf_args", ("service.command", "service.job_context"), "arguments of the command, or the context of main"),
    Row("num_executors", ("worker.count",), "less num_ps, master_node and eval_node"),
    Row("num_ps", ("parameter_server.count",), ""),
    Row("master_node", ("chief.count",), "chief or master: 1"),
    Row("eval_node", ("evaluator.count",), "True: 1"),
    Row("tensorboard, log_dir", ("service.use_tensorboard", "service.checkpoint_dir"), ""),
    Row("input_mode=InputMode.TENSORFLOW", (), "programs read their data themselves: that is what happens here"),
    Row("input_mode=InputMode.SPARK", (), _FEEDING),
    Row("driver_ps_nodes", (), "parameter servers are tasks like others"),
    Row("reservation_timeout", (), "a job waits until it fits, and says what is missing"),
    Row("release_port", (), "the task's port is the program's from the start"),
    Row("spark.executor.cores, spark.task.cpus", ("worker.cpus", "parameter_server.cpus"), ""),
    Row("spark.executor.memory", ("worker.mem", "parameter_server.mem"), "MB"),
    Row("spark.executor.resource.gpu.amount", ("gpu_worker.gpus",), ""),
    Row("--py-files, --archives", ("service.job_url", "service.python"), ""),
    Row("TFCluster.shutdown(grace_secs)", ("worker.kill_grace",), "tasks that still run at the end are stopped"),
    Row("ctx.job_name, ctx.task_index", (), "JOB_NAME, TASK_INDEX, or TF_CONFIG"),
    Row("ctx.cluster_spec", (), "CLUSTER_SPEC, or TF_CONFIG"),
    Row("ctx.start_cluster_server", (), "main gets the server (docs/tasks.md), or make it from TF_CONFIG"),
    Row("ctx.absolute_path, TFNode.hdfs_path", (), "write whole addresses, such as hdfs://host/path"),
    Row("TFNode.DataFeed", (), _FEEDING),
)
