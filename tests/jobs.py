"""Small jobs that need no TensorFlow, and agents for them."""

import json

from kit.waiting import PATIENCE, wait_until

__all__ = ["PATIENCE", "UNTIL_KILLED", "WORKER_0", "agents", "gone", "options", "wait_for"]


def options(folder, command="true", service=None, **sections):
    """A small job that needs no TensorFlow: two workers, one ps, 0.1 cpu each."""
    small = {"cpus": 0.1, "mem": 32, "disk": 0}
    document = {
        "service": {"name": "small", "strategy": "between_graph", "command": command, **(service or {})},
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


def wait_for(*paths) -> None:
    """Wait until all files exist."""
    wait_until(lambda: all(path.exists() for path in paths), f"missing of {', '.join(map(str, paths))}")


def gone(path):
    """Wait until the file does not exist."""
    return wait_until(lambda: not path.exists(), f"still there: {path}")
