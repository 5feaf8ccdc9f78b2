"""Table of the distribution strategies; a row holds all rules about a strategy."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Callable, Mapping

from .text import join_words


class RestartScope(Enum):
    """Tasks that restart, including the lost task; the documentation shows the value."""

    ALONE = "that task"
    WITH_CHIEF = "that task and the chief"
    ALL = "every task of the cluster"
    READERS = "the data service, and all tasks that read from it"


@dataclass(frozen=True)
class LossRule:
    """What restarts when a task of a job is lost (measured)."""

    #: Job of the ClusterSpec.
    job: str
    #: At the previous address; also at a new one with the same DNS name.
    same: RestartScope
    moved: RestartScope
    why: str


@dataclass(frozen=True)
class Traits:
    """Properties of a strategy."""

    losses: tuple[LossRule, ...]
    #: Library of its programs: `tensorflow` or `torch`.
    library: str = "tensorflow"
    #: Ends of dotted names that only its programs use, its class first; and a library that only they import.
    names: tuple[str, ...] = ()
    module: str = ""
    #: Call with which a task joins the others, in backquotes.
    joins: str = ""
    #: Other names that people give it, its launcher, and its framework in jobs of TonY.
    aliases: tuple[str, ...] = ()
    launcher: str = ""
    tony_framework: str = ""

    # -- tasks

    #: Whether a task depends on others; otherwise each trains on its own.
    has_peers: bool = True
    #: Whether its tasks are TensorFlow servers, which get TF_CONFIG.
    has_servers: bool = False
    #: Whether parameter servers hold its variables.
    has_parameter_servers: bool = False
    #: Whether its chief only coordinates: it gives work to the workers, which print nothing and never end.
    chief_coordinates: bool = False
    #: Whether each task trains a replica and does the same steps, in Keras, too.
    is_mirrored: bool = False
    #: Whether the executor of rank 0 runs the rendezvous server (`launch.rendezvous`).
    has_rendezvous: bool = False
    #: Sections that need a task; empty: a chief or a worker.
    needed_sections: tuple[str, ...] = ()
    #: Number of tasks if options omit `count`, and number of workers, parameter servers and chiefs of a new job.
    omitted_counts: Mapping[str, int] = field(default_factory=dict)
    new_counts: tuple[int, int, int] = (2, 0, 0)

    # -- start and end

    #: Jobs whose tasks need every address and restart when one changes (measured). Other tasks need only their own
    #: address and learn the rest from these.
    address_dependents: tuple[str, ...] = ("chief", "worker")
    #: Whether the job ends with the last worker instead of the first.
    ends_with_all: bool = False
    #: Whether `worker.min_count` allows a restart with fewer workers than in the options.
    can_start_smaller: bool = False
    #: Whether workers can join and leave a running chief.
    can_resize_live: bool = False
    #: Whether Model.fit of Keras 3 does not support it.
    fit_needs_keras_2: bool = False

    #: Variables of a training task: name -> text, in which {rank}, {size}, {host} and {port} of rank 0, {task} and
    #: {processes} (one, or one per GPU) are replaced.
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def rank_variables(self) -> Mapping[str, str]:
        """Return all variables of a training task in this form."""
        return {"SHARD_INDEX": "{rank}", "NUM_SHARDS": "{size}", **self.variables}

    @property
    def is_collective(self) -> bool:
        """Whether the loss of a task restarts all tasks, because they train together."""
        return any(loss.same is RestartScope.ALL for loss in self.losses)


_ALONE, _WITH_CHIEF, _ALL, _READERS = RestartScope

#: PyTorch's `env://` rendezvous (torch.distributed documentation): one process per task, of local rank 0.
_PYTORCH = {
    "MASTER_ADDR": "{host}",
    "MASTER_PORT": "{port}",
    "RANK": "{rank}",
    "WORLD_SIZE": "{size}",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
    "GROUP_RANK": "{rank}",
    "GROUP_WORLD_SIZE": "{size}",
}
#: TonY's names.
_TONY = {"INIT_METHOD": "tcp://{host}:{port}", "WORLD": "{size}"}
#: Defaults of `torchrun` (torch/distributed/run.py), which otherwise starts a model of its own. Same as Kubeflow's
#: training-operator: each task is a node, with a process per GPU. The endpoint is for c10d.
_TORCHRUN = {
    "PET_NNODES": "{size}",
    "PET_NODE_RANK": "{rank}",
    "PET_NPROC_PER_NODE": "{processes}",
    "PET_MASTER_ADDR": "{host}",
    "PET_MASTER_PORT": "{port}",
    "PET_RDZV_ENDPOINT": "{host}:{port}",
}
#: Horovod's launcher (horovod/runner/gloo_run.py): each task counts as a host.
_HOROVOD = {
    "HOROVOD_RANK": "{rank}",
    "HOROVOD_SIZE": "{size}",
    "HOROVOD_LOCAL_RANK": "0",
    "HOROVOD_LOCAL_SIZE": "1",
    "HOROVOD_CROSS_RANK": "{rank}",
    "HOROVOD_CROSS_SIZE": "{size}",
    "HOROVOD_HOSTNAME": "{task}",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR": "{host}",
    "HOROVOD_GLOO_RENDEZVOUS_PORT": "{port}",
    "HOROVOD_CONTROLLER": "gloo",
    "HOROVOD_CPU_OPERATIONS": "gloo",
}


class Strategy(str, Enum):
    """Distribution strategy of training, a value of `service.strategy`."""

    PARAMETER_SERVER = "parameter_server"
    MULTI_WORKER_MIRRORED = "multi_worker_mirrored"
    BETWEEN_GRAPH = "between_graph"
    INDEPENDENT = "independent"
    PYTORCH_DDP = "pytorch_ddp"
    HOROVOD = "horovod"

    @property
    def traits(self) -> Traits:
        return _TRAITS[self]


_TRAITS: Mapping[Strategy, Traits] = {
    Strategy.PARAMETER_SERVER: Traits(
        losses=(
            LossRule("worker", _ALONE, _WITH_CHIEF, "a running chief cannot learn a new address"),
            LossRule(
                "ps",
                _WITH_CHIEF,
                _WITH_CHIEF,
                "the chief exits when a ps is lost; a new chief restores the checkpoint",
            ),
            LossRule("chief", _ALONE, _ALONE, "workers and ps wait for the new chief"),
        ),
        names=("ParameterServerStrategy", "ParameterServerStrategyV2"),
        joins="`tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())` in "
        "the chief, `tf.distribute.Server(...).join()` in ps and workers",
        aliases=("ps",),
        has_servers=True,
        has_parameter_servers=True,
        chief_coordinates=True,
        needed_sections=("chief", "worker", "parameter_server"),
        omitted_counts={"parameter_server": 1, "chief": 1},
        new_counts=(2, 1, 1),
        address_dependents=("chief",),
        can_resize_live=True,
        fit_needs_keras_2=True,
    ),
    Strategy.MULTI_WORKER_MIRRORED: Traits(
        losses=(
            LossRule("worker", _ALL, _ALL, "the other workers exit within seconds"),
            LossRule("chief", _ALL, _ALL, "the chief coordinates the workers"),
        ),
        names=("MultiWorkerMirroredStrategy", "CollectiveAllReduceStrategy"),
        joins="`tf.distribute.MultiWorkerMirroredStrategy()`",
        has_servers=True,
        is_mirrored=True,
        needed_sections=("worker",),
        can_start_smaller=True,
        fit_needs_keras_2=True,
    ),
    Strategy.BETWEEN_GRAPH: Traits(
        losses=(
            LossRule("worker", _ALONE, _ALL, "tasks connect only to the addresses known at their launch"),
            LossRule("ps", _ALONE, _ALL, "workers reconnect only to the previous address"),
            LossRule("chief", _ALONE, _ALL, "same as for a worker"),
        ),
        names=("train.Server", "distribute.Server"),
        joins="`tf.distribute.Server(cluster, job_name, task_index)`",
        has_servers=True,
        has_parameter_servers=True,
        omitted_counts={"parameter_server": 2},
        new_counts=(2, 1, 0),
        address_dependents=("chief", "worker", "ps"),
    ),
    Strategy.INDEPENDENT: Traits(
        losses=(
            LossRule("worker", _ALONE, _ALONE, "tasks are independent"),
            LossRule("chief", _ALONE, _ALONE, "tasks are independent"),
        ),
        has_peers=False,
        new_counts=(1, 0, 0),
        address_dependents=(),
        ends_with_all=True,
    ),
    Strategy.PYTORCH_DDP: Traits(
        losses=(
            LossRule("worker", _ALL, _ALL, "the other workers fail in the next all-reduce"),
            LossRule("chief", _ALL, _ALL, "the chief coordinates the workers"),
        ),
        library="torch",
        names=("init_process_group", "DistributedDataParallel"),
        joins='`torch.distributed.init_process_group("gloo")`',
        aliases=("torchrun", "ddp"),
        launcher="torchrun",
        tony_framework="pytorch",
        ends_with_all=True,
        variables={**_PYTORCH, **_TONY, **_TORCHRUN},
    ),
    Strategy.HOROVOD: Traits(
        losses=(
            LossRule("worker", _ALL, _ALL, "same as for pytorch_ddp"),
            LossRule("chief", _ALL, _ALL, "same as for pytorch_ddp"),
        ),
        names=("hvd.init",),
        joins="`hvd.init()`",
        module="horovod",
        aliases=("hvd",),
        launcher="horovodrun",
        tony_framework="horovod",
        has_rendezvous=True,
        ends_with_all=True,
        variables=_HOROVOD,
    ),
}


def strategies_with(has: Callable[[Traits], bool]) -> tuple[str, ...]:
    """Return the names of the strategies for whose traits `has` is true."""
    return tuple(strategy.value for strategy in Strategy if has(strategy.traits))


def named(has: Callable[[Traits], bool], conjunction: str) -> str:
    """Return these names as a text such as `a, b or c`, see `strategies_with`."""
    return join_words(strategies_with(has), conjunction)
