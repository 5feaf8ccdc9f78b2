"""Sub-command `dcos tensorflow` of the dcos command, for Python 3.8 and click 8.1."""

__version__ = "0.1.0"
#: The variable that stands for --json.
JSON_VARIABLE = "DCOS_TENSORFLOW_JSON"
