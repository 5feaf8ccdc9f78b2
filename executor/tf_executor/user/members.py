"""Inside the chief's program: let workers join and leave its TensorFlow cluster.

Python 3.6. The executor writes a numbered list of the wanted members to a file. It also puts a `sitecustomize` that
calls `watch` on the chief's PYTHONPATH. A thread compares the list with the cluster, and reports the number of the list
that is in force. A request in the worker's own queue makes a worker leave. A new worker has a subclass of TensorFlow's
Worker, which makes iterators and other per-worker values when a step first needs them. Registrations of the program's
functions wait while the workers change.

This module uses private names of TensorFlow (tensorflow/python/distribute/coordinator), which are the same in 2.13 to
2.21. `problem_of` refuses other releases.
"""

import copy
import importlib.abc
import importlib.util
import itertools
import json
import os
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, Tuple

from . import reporting

#: Variable with the path of the file with the wanted members; set for the chief only.
FILE_VARIABLE = "TF_EXECUTOR_MEMBERS"
#: Module whose import starts the thread.
_COORDINATOR = "tensorflow.python.distribute.coordinator.cluster_coordinator"
#: First and last release of TensorFlow that was tried.
_FIRST, _LAST = (2, 13), (2, 21)
#: Seconds between two looks at the file, and between two reports of the same number, which may get lost.
_LOOK, _REPEAT = 0.2, 5.0
#: Seconds to wait for the end of the step that a leaving worker runs, and for TensorFlow's recovery of another worker.
_STEP = 300.0
#: Updates of TensorFlow's cluster after which the chief restarts: each leaves four idle native threads.
_MAX_UPDATES = 500
_updates = itertools.count(1)
#: Maximum characters of a reported error.
_MAX_ERROR = 300

#: Index of a worker -> its address.
Members = Dict[int, str]


class MembersError(Exception):
    """A change of the members failed; the chief needs a restart."""


#: The program's coordinators, weakly; and whether it has variables of each worker, which a new one would lack.
_coordinators = []  # type: list[Any]
_variables = []  # type: list[bool]


#: Methods of TensorFlow's context that send functions to every worker, or remove them there. They fail if the workers
#: change meanwhile, which would end the program: "Client for target ... not found".
_REGISTRATIONS = ("add_c_function", "add_function", "add_function_def", "remove_function")
_changing = threading.RLock()


def _one_at_a_time(method: Any) -> Any:
    def wrapped(self: Any, *arguments: Any) -> Any:
        with _changing:
            return method(self, *arguments)

    return wrapped


def watch() -> None:
    """Start the thread when the program imports TensorFlow's coordinator."""
    if FILE_VARIABLE in os.environ:
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Import hook that waits for the import of the coordinator, then removes itself."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:  # noqa: ARG002
        if fullname != _COORDINATOR:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        loader = spec.loader if spec else None  # type: Any
        if loader is not None:
            execute = loader.exec_module

            def execute_and_note(module: Any) -> None:
                execute(module)
                _note_coordinators(module)

            loader.exec_module = execute_and_note
        return spec


def _note_coordinators(module: Any) -> None:
    """Note each ClusterCoordinator that is made from now on, and start the thread."""
    kind = module.ClusterCoordinator
    init, variables = kind.__init__, getattr(kind, "_create_per_worker_variables", None)  # type: Any, Any

    def noted(self: Any, strategy: Any) -> None:
        init(self, strategy)
        _coordinators.append(weakref.ref(self))

    def with_variables(self: Any, *arguments: Any, **names: Any) -> Any:
        _variables.append(True)
        return variables(self, *arguments, **names)

    for name in _REGISTRATIONS:
        if hasattr(module.context.Context, name):
            setattr(module.context.Context, name, _one_at_a_time(getattr(module.context.Context, name)))
    kind.__init__ = noted
    if variables is not None:
        kind._create_per_worker_variables = with_variables
    threading.Thread(target=_follow, args=(os.environ[FILE_VARIABLE],), name="members", daemon=True).start()


def _follow(path: str) -> None:
    """Apply each new list of wanted members, and report the result repeatedly."""
    done = 0
    answer = {}  # type: Dict[str, Any]
    next_report = 0.0
    while True:
        time.sleep(_LOOK)
        version, members = _read(path)
        coordinator = _find_coordinator() if version > done else None
        if coordinator is not None:
            answer = _change(coordinator, members, version)
            done, next_report = version, 0.0
        if answer and time.monotonic() >= next_report:
            next_report = time.monotonic() + _REPEAT
            reporting.send(answer)


def _read(path: str) -> Tuple[int, Members]:
    """Return number and content of the wanted list; 0 and empty without a list."""
    try:
        wanted = json.loads(Path(path).read_text())
    except (OSError, ValueError):
        return 0, {}
    return int(wanted["version"]), {int(index): address for index, address in wanted["workers"].items()}


def _change(coordinator: Any, members: Members, version: int) -> Dict[str, Any]:
    """Change the members; return what to report."""
    try:
        problem = problem_of(coordinator)
        if problem:
            raise MembersError(problem)
        change(coordinator, members, lambda: reporting.send({reporting.MEMBERS_KEY: version}))
    except Exception as error:  # whatever fails, a restart of the chief helps
        text = str(error) if isinstance(error, MembersError) else f"{type(error).__name__}: {error}"
        sys.stderr.write(f"workers cannot join or leave the running chief: {text}\n")
        return {reporting.MEMBERS_KEY: version, "members_error": " ".join(text.split())[:_MAX_ERROR]}
    return {reporting.MEMBERS_KEY: version}


def _find_coordinator() -> Any:
    """Return the program's last ClusterCoordinator, or None while there is none."""
    coordinators = (reference() for reference in reversed(_coordinators))
    return next((coordinator for coordinator in coordinators if coordinator is not None), None)


def problem_of(coordinator: Any) -> str:
    """Return why the members of this coordinator cannot change; empty if they can."""
    import tensorflow

    version = tuple(int(part) for part in tensorflow.__version__.split(".")[:2])
    if not _FIRST <= version <= _LAST:
        return f"TensorFlow {tensorflow.__version__} was not tried with it, only 2.{_FIRST[1]} to 2.{_LAST[1]}"
    module = sys.modules[_COORDINATOR]
    cluster = coordinator._cluster
    places = (
        (module, "Worker", "ResourceClosure", "WorkerPreemptionHandler", "PerWorkerValues"),
        (module.Worker, "_process_closure", "_process_resource_closure", "_register_resource", "create_resource"),
        (cluster, "workers", "closure_queue", "failure_handler", "resource_cancellation_mgr"),
        (cluster.failure_handler, "_server_def", "_cluster_update_lock"),
        (cluster.closure_queue, "put", "clear_tag_unlocked", "_queue_lock"),
    )
    missing = [name for place, *names in places for name in names if not hasattr(place, name)]
    if missing:
        return "TensorFlow {} has no {}".format(tensorflow.__version__, ", ".join(missing))
    if type(cluster.failure_handler) is not module.WorkerPreemptionHandler:
        return "TF_PSS_ENABLE_COORDINATION_SERVICE is set"
    if _variables:
        return "the program has variables of each worker"
    return ""


def change(coordinator: Any, wanted: Members, can_stop: Callable[[], None]) -> None:
    """Let workers leave and join until the cluster has the wanted workers.

    Raises MembersError, and errors of TensorFlow. A worker whose address changes leaves and joins again. If workers
    only leave, `can_stop` is called when they run no more steps. TensorFlow then waits until the leaving workers have
    closed their contexts, up to 61 s in tests: a context waits for the thread that tunes tf.data (Model::OptimizeLoop),
    and this thread may sleep for a minute. A worker whose process has ended delays nothing.
    """
    cluster = coordinator._cluster
    present = dict(_tasks(cluster.failure_handler._server_def))
    leaving = [index for index in sorted(present, reverse=True) if present[index] != wanted.get(index)]
    joining = {index: wanted[index] for index in sorted(wanted) if present.get(index) != wanted[index]}
    for index in leaving:
        _stop_thread(cluster, cluster.workers[index])
        cluster.workers[index] = _Absent(cluster)
    if leaving and not joining:
        can_stop()
    if leaving:
        _update(cluster, leaving, {})
    if joining:
        _update(cluster, (), joining)
    for index in joining:
        # TensorFlow knows the address already.
        while len(cluster.workers) <= index:
            cluster.workers.append(_Absent(cluster))
        cluster.workers[index] = _joined_class()(index, f"/job:worker/replica:0/task:{index}", cluster)
        cluster._num_workers = len(cluster.workers)


def _tasks(server_def: Any) -> Any:
    return next(job for job in server_def.cluster.job if job.name == "worker").tasks


def _stop_thread(cluster: Any, worker: Any) -> None:
    """End the worker's thread between two steps. Raises MembersError.

    A call of TensorFlow's `stop` from another thread would cancel the worker's next step, which would end the training
    (tensorflow/tensorflow#49726). So a closure for this worker alone wakes the worker's thread, which takes this
    closure before others and then calls `stop`.
    """
    kind = sys.modules[_COORDINATOR].ResourceClosure
    gone, last, process = threading.Event(), kind.__new__(kind), worker._process_resource_closure

    def process_or_end(closure: Any) -> None:
        if closure is last:
            worker.stop()
            gone.set()
        else:
            process(closure)

    worker._process_resource_closure = process_or_end
    cluster.closure_queue.put(last, tag=worker.worker_index)
    if not gone.wait(_STEP):
        raise MembersError(f"worker {worker.worker_index} did not end its step in {_STEP:.0f} s")
    with cluster.closure_queue._queue_lock:
        cluster.closure_queue.clear_tag_unlocked(worker.worker_index)


def _update(cluster: Any, leaving: Iterable[int], joining: Members) -> None:
    """Change addresses in TensorFlow's cluster. Raises MembersError.

    Changes all addresses in one update, because each update leaves four threads behind.
    """
    if next(_updates) > _MAX_UPDATES:
        raise MembersError(
            f"{_MAX_UPDATES} changes left {4 * _MAX_UPDATES} threads of TensorFlow, which a restart ends"
        )
    from tensorflow.python.eager import context

    handler = cluster.failure_handler
    if not handler._cluster_update_lock.acquire(timeout=_STEP):
        raise MembersError(f"TensorFlow waits for another worker since {_STEP:.0f} s")
    try:
        tasks = _tasks(handler._server_def)
        for index in leaving:
            del tasks[index]
        tasks.update(joining)
        with _changing:
            context.context().update_server_def(handler._server_def)
    finally:
        handler._cluster_update_lock.release()


class _Absent:
    """Placeholder for an absent worker, whose values are made when it joins."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster

    def stop(self) -> None:
        """Do nothing: TensorFlow stops every worker at the end."""

    def create_resource(self, function: Any, args: Any = None, kwargs: Any = None) -> Any:
        """Return a value that is not made yet, but stores how to make it."""
        manager = self._cluster.resource_cancellation_mgr
        kind = sys.modules[_COORDINATOR].ResourceClosure
        return kind(function, manager, args=args, kwargs=kwargs).build_output_remote_value()


_joined = []  # type: list[Any]
#: Held while a value gets a place for another worker.
_placing = threading.Lock()


def _joined_class() -> Any:
    """Return the class of workers that join later, a subclass of TensorFlow's Worker."""
    if not _joined:
        coordinator = sys.modules[_COORDINATOR]
        base = coordinator.Worker

        class JoinedWorker(base):  # type: ignore[misc,valid-type]
            """A worker whose values, such as iterators, are made before a step needs them."""

            def _process_closure(self, closure: Any) -> None:
                for values in _per_worker_values((closure._args, closure._kwargs)):
                    _provide(self, values)
                super()._process_closure(closure)

        _joined.append(JoinedWorker)
    return _joined[0]


def _per_worker_values(structure: Any) -> Iterator[Any]:
    from tensorflow.python.util import nest

    kind = sys.modules[_COORDINATOR].PerWorkerValues
    return (item for item in nest.flatten(structure) if isinstance(item, kind))


def _provide(worker: Any, values: Any) -> None:
    """Make the worker's own value in the way of the other workers, unless it exists."""
    index, present = worker.worker_index, values._values
    if index < len(present) and any(reference() is present[index] for reference in worker._resource_remote_value_refs):
        return
    template = present[0]
    closure = copy.copy(template._closure)
    for needed in _per_worker_values((closure._args, closure._kwargs)):
        _provide(worker, needed)
    closure._output_remote_value_ref, closure.tag = None, index
    value = closure.build_output_remote_value()
    value._type_spec = template._type_spec
    with worker._resource_tracking_lock:
        worker._register_resource(value)
    worker._process_resource_closure(closure)
    with _placing:
        places = list(values._values)
        places += [template] * (index + 1 - len(places))
        places[index] = value
        values._values = tuple(places)
