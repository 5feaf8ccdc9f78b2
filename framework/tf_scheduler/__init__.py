"""Scheduler of distributed TensorFlow on Mesos; see docs/develop/architecture.md."""

__version__ = "0.1.0"
