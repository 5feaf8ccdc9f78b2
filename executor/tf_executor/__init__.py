"""The executor: runs one task's program on an agent and reports how it ends.

Standard library and `mesos_client` only, Python 3.8 and later. A small part of the package is for the user's program,
which finds it on its PYTHONPATH, Python 3.6 and later: `tf_executor.report`, `tf_executor.logdir`,
`tf_executor.devices`, `tf_executor.keras` (`user_package` says which modules these are). Outside a task they do nothing
but answer.
"""

from tf_executor import devices
from tf_executor.folders import logdir
from tf_executor.reporting import report

__all__ = ["devices", "logdir", "report"]
__version__ = "0.1.0"
