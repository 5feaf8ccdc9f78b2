"""A local DC/OS: Marathon, Cosmos and the admin router before the local Mesos.

As much of them as installing our package needs, and no more: a front to `tf_scheduler.package` and `mesos_local`.
"""
