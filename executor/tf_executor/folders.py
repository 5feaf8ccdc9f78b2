"""For the user's program: where it keeps what it writes. Standard library only, Python 3.6."""

import os
from pathlib import Path

#: Set by the executor.
VARIABLE = "LOG_DIR"


def logdir() -> str:
    """The folder, or address, of this run for logs and checkpoints: checkpoint_dir where there is one.

    A folder is made if it is not there; outside a task it is `logs` in the working directory.
    """
    found = os.environ.get(VARIABLE) or str(Path("logs").absolute())
    if "://" not in found:
        Path(found).mkdir(parents=True, exist_ok=True)
    return found
