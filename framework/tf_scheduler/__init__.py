"""Scheduler of distributed TensorFlow on Mesos; see docs/architecture.md."""

__version__ = "0.1.0"
