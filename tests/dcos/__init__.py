"""The DC/OS of this machine: Marathon, Cosmos and the admin router in front of the local Mesos.

As much of them as installing our package needs, and no more: a front to `tf_scheduler.package` and `mesos_local`.
"""
