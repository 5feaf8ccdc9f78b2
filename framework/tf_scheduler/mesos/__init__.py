"""Mesos v1 JSON <-> model, and the calls. Nothing else in the scheduler knows the wire."""
