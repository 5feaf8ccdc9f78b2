"""What is read from the source of a program, and the options for it."""

from __future__ import annotations

import itertools
from pathlib import Path, PurePosixPath

import pytest

from tf_executor.contract.strategies import Strategy
from tf_scheduler.convert.program import NewJob, job_name, scan, strategy_named, summary
from tf_scheduler.errors import JobError
from tf_scheduler.options.load import resolve

EXAMPLES = Path(__file__).parents[3] / "examples"
FIT = "import tensorflow as tf\n\nmodel.fit(data)\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("s = tf.distribute.ParameterServerStrategy(r)", Strategy.PARAMETER_SERVER),
        ("s = tf.distribute.experimental.ParameterServerStrategyV2(r)", Strategy.PARAMETER_SERVER),
        ("s = tf.distribute.MultiWorkerMirroredStrategy()", Strategy.MULTI_WORKER_MIRRORED),
        ("from tensorflow.distribute import MultiWorkerMirroredStrategy as M", Strategy.MULTI_WORKER_MIRRORED),
        ("server = tf.train.Server(cluster)", Strategy.BETWEEN_GRAPH),
        ("from tensorflow.train import Server", Strategy.BETWEEN_GRAPH),
        ("import torch.distributed as dist\ndist.init_process_group('gloo')", Strategy.PYTORCH_DDP),
        ("'''Start: torchrun train.py'''\nimport torch", Strategy.PYTORCH_DDP),
        ("import horovod.torch as hvd\nhvd.init()", Strategy.HOROVOD),
        ("from horovod import tensorflow as h\nh.init()", Strategy.HOROVOD),
        ("'''Not MultiWorkerMirroredStrategy, nor torchrun.'''\nimport sklearn", Strategy.INDEPENDENT),
        ("MyMultiWorkerMirroredStrategy()", Strategy.INDEPENDENT),
        ("", Strategy.INDEPENDENT),
    ],
)
def test_strategy_is_guessed_from_names(source: str, expected: Strategy) -> None:
    facts = scan({"train.py": source})

    assert (expected, bool(facts.evidence)) == (facts.strategy, expected is not Strategy.INDEPENDENT)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("between_graph", "between_graph"),
        ("coordinator", "parameter_server"),
        ("data_service", "independent"),
        ("digits", "parameter_server"),
        ("evaluator", "independent"),
        ("horovod", "horovod"),
        ("independent", "independent"),
        ("multi_worker_mirrored", "multi_worker_mirrored"),
        ("pytorch_ddp", "pytorch_ddp"),
    ],
)
def test_strategies_of_the_examples(name: str, expected: str) -> None:
    """None of them has the problem of Keras 3."""
    facts = scan({"train.py": (EXAMPLES / name / "train.py").read_text()})

    assert (expected, name == "data_service") == (facts.strategy.value, facts.data_service)
    assert not (facts.fit and expected in ("parameter_server", "multi_worker_mirrored"))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (FIT, "train.py:3"),
        (f"{FIT}model.fit(more)", "train.py:3"),
        ("model = build()\nbuild().fit(\n  data)", "train.py:2"),
        ("def fit(): pass\nfit()", ""),
        ("# model.fit(x)\n'''model.fit(x)'''", ""),
        (f"import tf_keras\n{FIT}", ""),
        (f"from tf_keras import layers\n{FIT}", ""),
        (f"import os\nos.environ['TF_USE_LEGACY_KERAS'] = '1'\n{FIT}", ""),
        (f"# run with TF_USE_LEGACY_KERAS=1\n{FIT}", "train.py:4"),
    ],
)
def test_first_fit_of_keras_3(source: str, expected: str) -> None:
    """Programs that select Keras 2 themselves have none."""
    assert expected == scan({"train.py": source}).fit


def test_program_of_python_2_is_read() -> None:
    """Without its comments and long texts."""
    source = '''"""Uses
MultiWorkerMirroredStrategy"""
import tensorflow as tf  # or: import torch
server = tf.train.Server(cluster)
print "started"
model.fit(x)
'''

    facts = scan({"train.py": source})

    assert (Strategy.BETWEEN_GRAPH, "train.Server", "train.py:6") == (facts.strategy, facts.evidence, facts.fit)
    assert {"tensorflow"} == facts.modules


@pytest.mark.parametrize("source", ["\0", "((((" * 2000, "'\\d'\nimport x", "\ufeffimport x", "if:\n\tx\n  y", "'''"])
def test_scan_never_fails(source: str) -> None:
    assert Strategy.INDEPENDENT is scan({"train.py": source}).strategy


def test_all_sources_of_a_program_count() -> None:
    """The strategy may be in one file, and the call of fit in another."""
    facts = scan({"train.py": "import lib", "lib.py": f"tf.distribute.MultiWorkerMirroredStrategy()\n{FIT}"})

    assert (Strategy.MULTI_WORKER_MIRRORED, "lib.py:4") == (facts.strategy, facts.fit)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("multi_worker_mirrored", Strategy.MULTI_WORKER_MIRRORED),
        ("MultiWorkerMirroredStrategy", Strategy.MULTI_WORKER_MIRRORED),
        ("tf.distribute.experimental.ParameterServerStrategy", Strategy.PARAMETER_SERVER),
        ("parameter-server", Strategy.PARAMETER_SERVER),
        ("torchrun", Strategy.PYTORCH_DDP),
        ("DistributedDataParallel", Strategy.PYTORCH_DDP),
        ("Horovod", Strategy.HOROVOD),
    ],
)
def test_strategy_has_many_names(name: str, expected: Strategy) -> None:
    assert expected is strategy_named(name)


def test_unknown_strategy_has_a_suggestion() -> None:
    with pytest.raises(JobError, match=r"unknown strategy `Multi.*did you mean `multi_worker_mirrored`.*horovod"):
        strategy_named("MultiWorkerMirorStrategy")
    with pytest.raises(JobError, match="did you mean `multi_worker_mirrored`"):
        strategy_named("mirored")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/home/me/mnist.py", "mnist"),
        ("/home/me/My Nets (2)/train.py", "my-nets-2"),
        ("/home/mnist/src/main.py", "src"),
        ("/train.py", "job"),
        ("/x/-_-/train.py", "x"),
    ],
)
def test_job_is_named_after_program_or_folder(path: str, expected: str) -> None:
    assert expected == job_name(PurePosixPath(path))


@pytest.mark.parametrize("strategy", Strategy)
def test_new_options_are_valid(strategy: Strategy) -> None:
    """With amounts for all tasks, and nothing else."""
    options = NewJob("mnist", strategy, "train.py", ("train.py",)).options(lambda _: True)

    assert resolve(options)["service"]["command"] == "python train.py"
    assert {"name", "strategy", "job_url", "command"} == options["service"].keys()
    amounts = [values for section, values in options.items() if section != "service" and values["count"]]
    assert all({"count", "cpus", "mem"} == values.keys() for values in amounts)


def test_new_options_take_the_largest_amounts_that_fit() -> None:
    """The smallest ones if none fit: `local run` says why."""
    job = NewJob("mnist", Strategy.MULTI_WORKER_MIRRORED, "train.py", ("train.py",), workers=9)
    answers = itertools.chain([False, True], itertools.repeat(False))

    assert "9 workers of 0.25 cpus and 1024 MB" == summary(job.options(lambda _: next(answers)))
    assert "9 workers of 0.1 cpus and 512 MB" == summary(job.options(lambda _: False))


def test_arguments_are_quoted_and_name_variables() -> None:
    """The shell of the task replaces variables of the task, such as CHECKPOINT_DIR."""
    arguments = ("--dir", "$CHECKPOINT_DIR/a b", "--say=it's {task_index}", "$5")
    job = NewJob("mnist", Strategy.INDEPENDENT, ".", ("train.py",), arguments=arguments)

    command = job.options(lambda _: True)["service"]["command"]

    assert """python train.py --dir "${CHECKPOINT_DIR}"'/a b' '--say=it'"'"'s {''task_index}' '$5'""" == command


@pytest.mark.parametrize(
    "change",
    [
        "os.environ |= {'TF_CONFIG': '{}', **others}",
        "os.environ |= dict(TF_CONFIG='{}')",
        "os.environ.update(dict(TF_CONFIG='{}'))",
        "e['TF_CONFIG'] = '{}'",
        "env = os.environ; env['TF_CONFIG'] = '{}'",
        "env = os.environ; env |= {'TF_CONFIG': '{}'}",
        "os.environ.clear()",
        "env = os.environ; env.pop('TF_CONFIG', None)",
        "print(1 if 'TF_CONFIG' in os.environ else 2); os.environ['TF_CONFIG'] = '{}'",
        "del os.environ['TF_CONFIG']\nif 'TF_CONFIG' in os.environ:\n    print()",
    ],
)
def test_every_form_of_an_override_is_noticed(change: str) -> None:
    """Whatever the program reads in other places."""
    source = f"import os\nfrom os import environ as e\nif 'TF_CONFIG' in os.environ:\n    print()\n{change}\n"

    variables = scan({"train.py": source}).variables

    assert [("TF_CONFIG", "train.py:5")] == [(name, where) for (_, name), where in variables.items()]


@pytest.mark.parametrize(
    "source",
    [
        "if 'TF_CONFIG' not in os.environ:\n    os.environ |= {'TF_CONFIG': '{}'}\n",
        "if os.environ.get('TF_CONFIG'):\n    pass\nelse:\n    os.environ.update(TF_CONFIG='{}')\n",
        "def set_up():\n    if 'TF_CONFIG' in os.environ:\n        return\n    os.environ['TF_CONFIG'] = '{}'\n",
        "env = os.environ.copy(); env['TF_CONFIG'] = '{}'\n",
        "env = os.environ\ndef start(env):\n    env['TF_CONFIG'] = '{}'\n",
        "config = {}; config['TF_CONFIG'] = '{}'; config |= {'TF_CONFIG': '{}'}; config.clear()\n",
    ],
)
def test_no_override_is_invented(source: str) -> None:
    """A copy is for another process; a condition keeps the scheduler's value."""
    assert {} == scan({"train.py": f"import os\n{source}"}).variables
