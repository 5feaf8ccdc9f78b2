"""Mesos v1 scheduler API: connection, and conversion between JSON and the model."""
