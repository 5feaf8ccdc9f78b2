"""Call `main` of a job module of the original DC/OS package, or only run a server.

The job is a module with `main(server, log_dir, context)`.
Reads TF_CONFIG, JOB_MODULE (found on PYTHONPATH), JOB_CONTEXT (JSON object), LOG_DIR and DISTRIBUTION_STRATEGY.
Parameter servers, and workers with the strategy parameter_server, only run a server and call no `main`. With
between_graph, `server` is a running TensorFlow server. With other strategies `server` is None, because the strategies
of TensorFlow 2 start their own servers. Python 3.6, TensorFlow 1.15 and later.
"""

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

from .devices import get_num_gpus

BETWEEN_GRAPH, PARAMETER_SERVER = "between_graph", "parameter_server"


class JobModuleError(Exception):
    """The job cannot be run."""


def run(environ: Dict[str, str]) -> None:
    """Run this task; a task that only serves does not return. Raises JobModuleError."""
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
    """Return whether the task only runs a server for other tasks."""
    return job == "ps" or (job == "worker" and strategy == PARAMETER_SERVER)


def load(name: str) -> Callable[[Any, str, Dict[str, Any]], Any]:
    """Return the function `main` of the job's module. Raises JobModuleError."""
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        # Only if the module or its package is missing, not a module that it imports.
        if error.name is None or not (name + ".").startswith(error.name + "."):
            raise
        raise JobModuleError(f"option job_name: `{name}`: Python module not found in {_search_path()}") from None
    main = getattr(module, "main", None)
    if not callable(main):
        raise JobModuleError(f"{getattr(module, '__file__', name)} does not define main(server, log_dir, context)")
    return main  # type: ignore[no-any-return]


def _search_path() -> str:
    folders = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    listings = [f"{folder} ({', '.join(_listed(folder)[:20])})" for folder in folders]
    return "; ".join(listings) or "an empty PYTHONPATH"


def _listed(folder: str) -> List[str]:
    try:
        return sorted(path.name for path in Path(folder).iterdir() if not path.name.startswith("."))
    except OSError as error:
        return [str(error.strerror)]


def read_context(text: str) -> Dict[str, Any]:
    """Parse the option job_context, a JSON object. Raises JobModuleError."""
    try:
        context = json.loads(text or "{}")
    except ValueError as error:
        raise JobModuleError(f"option job_context: `{text}`: invalid JSON: {error}") from None
    if not isinstance(context, dict):
        raise JobModuleError(f"option job_context: `{text}`: expected a JSON object")
    return context


def build_server(cluster: Dict[str, Any], job: str, index: int) -> Any:
    """Start the TensorFlow server of this task.

    As in the original package, `server.server_def.default_session_config.device_count["GPU"]` is the number of GPUs.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    options = v1.GPUOptions(allow_growth=True)
    config = v1.ConfigProto(device_count={"GPU": get_num_gpus()}, gpu_options=options)
    spec = {name: _indexed(addresses) for name, addresses in cluster.items()}
    return v1.train.Server(v1.train.ClusterSpec(spec), job_name=job, task_index=index, config=config)


def _indexed(addresses: Any) -> Any:
    """Convert JSON's text keys, as in {"1": address}, to integers."""
    return {int(key): value for key, value in addresses.items()} if isinstance(addresses, dict) else addresses


if __name__ == "__main__":
    try:
        run(dict(os.environ))
    except JobModuleError as problem:
        sys.exit(f"job: {problem}")
