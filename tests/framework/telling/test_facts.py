"""Every outcome of a decision is told with what it is about."""

from builders import a_spec
from simulation import send
from simulation.mesos import an_agent
from simulation.world import World, play
from tf_scheduler.logging_setup import KEYS
from tf_scheduler.model.task import TaskState


def logged(caplog):
    return [{key: getattr(line, key, None) for key in ("message", *KEYS)} for line in caplog.records]


def test_a_launch_names_its_offer_and_agent(caplog):
    """And all launches of one gang the same decision."""
    caplog.set_level("INFO", "tf_scheduler.runner")
    world = play(World(a_spec(), an_agent()), send.register(), send.offers())

    launches = [line for line in logged(caplog) if " goes to " in line["message"]]
    assert {"ps-0", "worker-0", "worker-1", "chief-0"} == {line["task"] for line in launches}
    for line in launches:
        record = world.state.stored.tasks[line["task"]]
        assert (record.id, record.agent_id) == (line["task_id"], line["agent_id"])
        assert line["offer_id"]
    (decision,) = {line["decision"] for line in launches}
    assert decision.startswith("OffersReceived-")


def test_a_status_names_the_launch_that_it_is_about(caplog):
    """What follows for others is told with their own ids."""
    world = play(World(a_spec(), an_agent()), send.register(), send.offers(), send.running())
    caplog.set_level("INFO", "tf_scheduler.runner")
    old = world.id_of("ps-0")

    play(world, send.status("ps-0", TaskState.FAILED, signal=9, message="killed"), send.offers())

    lost, *_ = (line for line in logged(caplog) if line["task"] == "ps-0")
    assert old == lost["task_id"] != world.id_of("ps-0")
    assert lost["decision"].startswith("StatusUpdated-")
    others = [line for line in logged(caplog) if line["task"] not in (None, "ps-0")]
    assert others
    assert not [line for line in others if line["task_id"] == old]
