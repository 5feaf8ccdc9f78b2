"""tf.data service: this task's part of it. `python -m tf_executor.data_service`, in the task's Python. Python 3.6.

The dispatcher knows the data sets; the workers read and prepare them, and register at the dispatcher. Programs reach it
at DATA_SERVICE_ADDRESS, by `tf.data.experimental.service.distribute`.
"""

import os
import sys
from typing import Any, Mapping

DISPATCHER = "data-dispatcher"


def server(service: Any, environ: Mapping[str, str]) -> Any:
    """A started server of `service`, which is `tf.data.experimental.service`."""
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

    found = getattr(tf.data.experimental, "service", None)
    if found is None:
        sys.exit("data service: TensorFlow " + tf.__version__ + " has none; 2.3 is the first that has")
    server(found, os.environ).join()
