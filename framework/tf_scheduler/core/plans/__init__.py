"""Plans: what is to be done, in which order, and how far it is. Pure, computed from the state at every event.

define     which plans, phases and steps there are; outline: what follows from the options alone
facts      what the records say: which tasks are open
standing   the status of each step; tables has the state machines
strategy   whose turn it is; claims: without what is interrupted and what other plans work on
wanted     which tasks are to be placed now: all that offers ask
act        what plans do by themselves: tell tasks to end, forget them, note that they are complete
command    what operators want, and the answers
questions  what else the core asks: what a task is launched with, and whether its end matters
view       plans as they are shown
"""

from tf_scheduler.model.plan_names import DEPLOY, RECOVERY, UNINSTALL, UPDATE

from .act import act, end
from .command import command
from .define import Work
from .questions import (
    asleep,
    config_of,
    in_cluster,
    is_known,
    is_needed,
    last_steps,
    leaves,
    next_serial,
    parameters_of,
    replaces,
    target,
)
from .recovery import is_ripe, to_relaunch
from .view import plan_named, plans, uninstall_plan
from .wanted import Gang, purposes, wanted

__all__ = [
    "DEPLOY",
    "RECOVERY",
    "UNINSTALL",
    "UPDATE",
    "Gang",
    "Work",
    "act",
    "asleep",
    "command",
    "config_of",
    "end",
    "in_cluster",
    "is_known",
    "is_needed",
    "is_ripe",
    "last_steps",
    "leaves",
    "next_serial",
    "parameters_of",
    "plan_named",
    "plans",
    "purposes",
    "replaces",
    "target",
    "to_relaunch",
    "uninstall_plan",
    "wanted",
]
