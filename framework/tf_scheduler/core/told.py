"""What a task is told of itself and of the others, as its program sees it: for people who look at it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tf_scheduler.model.spec import JobSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

from . import plans
from .cluster_spec import cluster_of, tf_config
from .payload import payload_of
from .surroundings import surroundings


def variables_of(state: SchedulerState, record: TaskRecord, job: JobSpec) -> Mapping[str, str]:
    """The variables that say which task it is, and those of the options; no secret has its value here.

    Addresses are those of now: of a task of an older generation some have changed since its launch.
    """
    spec, cluster = state.spec, cluster_of(plans.in_cluster(state, ()))
    config = tf_config(cluster if spec.strategy.has_servers else {}, record.job, record.index)
    port = int(record.address.rpartition(":")[2])
    told = payload_of(spec, job, record, config, port, surroundings(spec, cluster, record))
    return {
        "TF_CONFIG": json.dumps(config),
        "JOB_NAME": told.job,
        "TASK_INDEX": str(told.index),
        "TASK_NAME": told.task,
        "TASK_PORT": str(port),
        **told.environment,
        **plans.parameters_of(state, record.plan),
    }
