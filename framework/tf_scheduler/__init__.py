"""The scheduler: places distributed TensorFlow on Mesos. docs/architecture.md has the picture."""

__version__ = "0.1.0"
