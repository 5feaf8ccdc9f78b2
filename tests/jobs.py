"""Small jobs that need no TensorFlow, and agents for them."""

import json
import os

#: Long enough for a busy machine; a hang is a failure, not a wait.
PATIENCE = 120


def options(folder, command="true", service=None, **sections):
    """A small job that needs no TensorFlow: two workers, one ps, 0.1 cpu each."""
    small = {"cpus": 0.1, "mem": 32, "disk": 0}
    document = {
        "service": {"name": "small", "command": command, **(service or {})},
        "parameter_server": {"count": 1, **small},
        "worker": {"count": 2, **small},
    }
    for name, section in sections.items():
        document[name] = {**document.get(name, {}), **section}
    path = folder / "options.json"
    path.write_text(json.dumps(document))
    return path


def agents(folder, *specs):
    path = folder / "agents.json"
    path.write_text(json.dumps([{"hostname": name, "resources": resources} for name, resources in specs]))
    return path


#: ps and non-chief workers never exit by themselves, like real ones; worker 0 decides.
UNTIL_KILLED = "exec sleep 1000"
WORKER_0 = 'case "$TASK_NAME" in worker-0) {};; *) exec sleep 1000;; esac'


def wait_for(*paths):
    """Until all are there; they appear within milliseconds of the tasks' start."""
    for path in paths:
        while not path.exists():
            os.sched_yield()
