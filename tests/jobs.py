"""Small jobs that need no TensorFlow, and agents for them."""

import json
import threading
import time

#: Long enough for a busy machine; a hang is a failure, not a wait.
PATIENCE = 180


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
    """Until all are there. A file cannot be awaited with what the standard library has; looking on and on would take
    the processor from who is to make it.
    """
    end = time.monotonic() + PATIENCE
    while missing := [path for path in paths if not path.exists()]:
        assert time.monotonic() < end, f"waited in vain for {', '.join(map(str, missing))}"
        threading.Event().wait(0.02)


def gone(path):
    """Whether it goes in time."""
    end = time.monotonic() + PATIENCE
    while path.exists() and time.monotonic() < end:
        threading.Event().wait(0.02)
    return not path.exists()
