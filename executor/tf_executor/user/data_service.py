"""Run this task's tf.data service server.

`python -m tf_executor.data_service`, Python 3.6.
The dispatcher distributes data sets to the workers, which register with the dispatcher. Programs connect to
DATA_SERVICE_ADDRESS with `tf.data.experimental.service.distribute`.
"""

import os
import sys
from typing import Any, Mapping

DISPATCHER = "data-dispatcher"


def server(service: Any, environ: Mapping[str, str]) -> Any:
    """Start the dispatcher or worker of `service` (tf.data.experimental.service)."""
    port = int(environ["TASK_PORT"])
    if environ["JOB_NAME"] == DISPATCHER:
        return service.DispatchServer(service.DispatcherConfig(port=port, protocol="grpc"))
    config = service.WorkerConfig(
        dispatcher_address=environ["DATA_SERVICE_ADDRESS"].partition("://")[2],
        worker_address=environ["TASK_ADDRESS"],
        port=port,
        protocol="grpc",
    )
    return service.WorkerServer(config)


if __name__ == "__main__":
    import tensorflow as tf

    module = getattr(tf.data.experimental, "service", None)
    if not hasattr(module, "DispatcherConfig"):
        sys.exit("TensorFlow " + tf.__version__ + " does not support the data service; install TensorFlow 2.4 or later")
    server(module, os.environ).join()
