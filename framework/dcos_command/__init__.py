"""`dcos tensorflow ...`: the sub-command that the dcos command installs. Python 3.8 and click 8.1."""

__version__ = "0.1.0"
#: The variable that stands for --json.
JSON_VARIABLE = "DCOS_TENSORFLOW_JSON"
