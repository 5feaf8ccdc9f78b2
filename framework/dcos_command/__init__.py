"""`dcos tensorflow ...`: the sub-command that the dcos command installs. Users' machines: Python 3.8, nothing else."""

__version__ = "0.1.0"
#: The variable that stands for --json.
AS_JSON = "DCOS_TENSORFLOW_JSON"
