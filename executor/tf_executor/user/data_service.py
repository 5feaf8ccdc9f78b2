"""Run this task's tf.data service server.

`python -m tf_executor.data_service`, Python 3.6.
The dispatcher distributes data sets to the workers, which register with the dispatcher. Programs connect to
DATA_SERVICE_ADDRESS with `tf.data.experimental.service.distribute`. A restarted dispatcher reads in its journal which
data sets there are, and which elements it has handed out. Programs and workers wait for the dispatcher.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, Mapping

DISPATCHER = "data-dispatcher"


def server(service: Any, environ: Mapping[str, str]) -> Any:
    """Start the dispatcher or worker of `service` (tf.data.experimental.service)."""
    port = int(environ["TASK_PORT"])
    if environ["JOB_NAME"] == DISPATCHER:
        journal = journal_settings(environ.get("DATA_SERVICE_JOURNAL", ""))
        try:
            return service.DispatchServer(service.DispatcherConfig(port=port, protocol="grpc", **journal))
        except RuntimeError as error:
            if not (journal and "truncated record" in str(error)):
                raise
            # As after a write to a full disk: no launch could read it.
            shutil.rmtree(journal["work_dir"])
            sys.exit("journal removed, the data sets have to be registered again: " + str(error))
    config = service.WorkerConfig(
        dispatcher_address=environ["DATA_SERVICE_ADDRESS"].partition("://")[2],
        worker_address=environ["TASK_ADDRESS"],
        port=port,
        protocol="grpc",
    )
    return service.WorkerServer(config)


def journal_settings(journal: str) -> Dict[str, Any]:
    """Make the journal's folder, and remove the folders of earlier runs.

    Return the dispatcher's settings for the journal; empty without a folder.
    """
    if not journal:
        return {}
    folder = Path(journal)
    hidden = folder.parent.parent
    try:
        if not hidden.is_dir():
            hidden.mkdir(parents=True)
            # Everyone who may write checkpoints may write here, as the executor has it.
            hidden.chmod(hidden.parent.stat().st_mode & 0o7777)
        folder.mkdir(parents=True, exist_ok=True)
        for other in folder.parent.iterdir():
            if other != folder:
                shutil.rmtree(str(other), ignore_errors=True)
    except OSError as error:
        sys.stderr.write(
            "the data service has no journal: " + str(error) + "; tasks that read from it fail when this dispatcher is "
            "lost; make checkpoint_dir a folder that it can write to\n"
        )
        return {}
    return {"work_dir": journal, "fault_tolerant_mode": True}


if __name__ == "__main__":
    import tensorflow as tf

    module = getattr(tf.data.experimental, "service", None)
    if not hasattr(module, "DispatcherConfig"):
        sys.exit("TensorFlow " + tf.__version__ + " does not support the data service; install TensorFlow 2.4 or later")
    server(module, os.environ).join()
