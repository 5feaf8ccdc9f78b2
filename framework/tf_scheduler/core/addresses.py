"""Where a task will be reached: the address of the ClusterSpec, before anything is launched."""

from __future__ import annotations

from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.spec import ServiceSpec

from .matching import Placement
from .resources import ports_of

#: Of every task on a virtual network, where nobody shares ports: TensorFlow's usual one.
PORT = 2222
#: DC/OS gives each container with an address of its own a name in this zone (DC/OS documentation, service discovery).
ZONE = "containerip.dcos.thisdcos.directory"


def host_and_port(spec: ServiceSpec, placement: Placement) -> tuple[str, int]:
    """The agent's address and the port that was taken from its offer; on a virtual network a name and a fixed port."""
    if spec.network is not None:
        return name_in_dns(spec.name, placement.task.name), PORT
    return placement.agent.address, ports_of(placement.task_resources)[0]


def name_in_dns(service: str, task: TaskName) -> str:
    """`worker-0.devmnist.containerip...` of the service dev/mnist: slashes are left out, as in the DC/OS SDK."""
    return f"{task}.{service.replace('/', '')}.{ZONE}"
