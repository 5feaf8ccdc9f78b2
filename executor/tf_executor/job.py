"""Runs a job of the original DC/OS package: a module with `main(server, log_dir, context)`. Python 3.6; TensorFlow 1.15
and later, imported only to build the server.

The environment says everything: TF_CONFIG, JOB_MODULE (the module; the folder it is in is on PYTHONPATH), JOB_CONTEXT
(a JSON object, which `main` gets as a dictionary), LOG_DIR, DISTRIBUTION_STRATEGY. A parameter server only serves.
With between_graph, `server` is a running TensorFlow server that knows the cluster. The strategies of TensorFlow 2 make
their own servers from TF_CONFIG, so that there `server` is None, except for workers of parameter_server, which only
serve too.
"""

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

from tf_executor.devices import get_num_gpus

BETWEEN_GRAPH, PARAMETER_SERVER = "between_graph", "parameter_server"


class JobError(Exception):
    """The job cannot be run; the text says why."""


def run(environ: Dict[str, str]) -> None:
    """Run this task's part, to its end; a task that only serves does not end by itself. Raise JobError."""
    config = json.loads(environ["TF_CONFIG"])
    job, index = config["task"]["type"], config["task"]["index"]
    strategy = environ.get("DISTRIBUTION_STRATEGY") or BETWEEN_GRAPH
    main = None if only_serves(job, strategy) else load(environ["JOB_MODULE"])
    context = read_context(environ.get("JOB_CONTEXT", "{}"))
    if main is None:
        build_server(config["cluster"], job, index).join()
        return
    log_dir = environ["LOG_DIR"]
    if "://" not in log_dir:
        Path(log_dir).mkdir(parents=True, exist_ok=True)
    needs_server = strategy == BETWEEN_GRAPH and job in config["cluster"]
    main(build_server(config["cluster"], job, index) if needs_server else None, log_dir, context)


def only_serves(job: str, strategy: str) -> bool:
    """Whether another task tells this one what to do."""
    return job == "ps" or (job == "worker" and strategy == PARAMETER_SERVER)


def load(name: str) -> Callable[[Any, str, Dict[str, Any]], Any]:
    """The function `main` of the job's module. Raise JobError."""
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        # Only the module itself or its packages: a module that it imports is another matter.
        if error.name is None or not (name + ".").startswith(error.name + "."):
            raise
        raise JobError(f"there is no module {name!r} (option job_name) in {_search_path()}") from None
    main = getattr(module, "main", None)
    if not callable(main):
        raise JobError(f"{getattr(module, '__file__', name)} has no function main(server, log_dir, context)")
    return main  # type: ignore[no-any-return]


def _search_path() -> str:
    folders = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    found = [f"{folder} ({', '.join(_listed(folder)[:20])})" for folder in folders]
    return "; ".join(found) or "no folder"


def _listed(folder: str) -> List[str]:
    try:
        return sorted(path.name for path in Path(folder).iterdir() if not path.name.startswith("."))
    except OSError as error:
        return [str(error.strerror)]


def read_context(text: str) -> Dict[str, Any]:
    """The JSON object of the option job_context. Raise JobError."""
    try:
        context = json.loads(text or "{}")
    except ValueError as error:
        raise JobError(f"the option job_context is no JSON: {error}: {text!r}") from None
    if not isinstance(context, dict):
        raise JobError(f"the option job_context must be a JSON object, not {text!r}")
    return context


def build_server(cluster: Dict[str, Any], job: str, index: int) -> Any:
    """A started TensorFlow server of this task.

    `server.server_def.default_session_config.device_count["GPU"]` says how many GPUs the task has, as in the original.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    options = v1.GPUOptions(allow_growth=True)
    config = v1.ConfigProto(device_count={"GPU": get_num_gpus()}, gpu_options=options)
    spec = {name: _indexed(addresses) for name, addresses in cluster.items()}
    return v1.train.Server(v1.train.ClusterSpec(spec), job_name=job, task_index=index, config=config)


def _indexed(addresses: Any) -> Any:
    """JSON has no whole numbers for keys: {"1": address} is meant as {1: address}."""
    return {int(key): value for key, value in addresses.items()} if isinstance(addresses, dict) else addresses


if __name__ == "__main__":
    try:
        run(dict(os.environ))
    except JobError as problem:
        sys.exit(f"job: {problem}")
