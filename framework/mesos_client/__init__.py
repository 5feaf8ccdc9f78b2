"""Mesos v1 scheduler and executor drivers that reconnect, on top of pymesos.

`scheduler.SchedulerDriver` and `executor.ExecutorDriver` are pymesos drivers with their connection handling replaced.
They pass on raw v1 events as dicts, report `DriverDisconnected` and `DriverAborted`, and return a `SendResult` for each
call. This module imports nothing, so that an executor does not load the code for schedulers.
"""
