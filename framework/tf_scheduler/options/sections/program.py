"""What every task of the service runs."""

from __future__ import annotations

from tf_scheduler.options.fields import Environment, Flag, Text

from .base import Change, Section, about

#: Of the original package. They hold TensorFlow 1.5 and no Python that our executor runs on (3.8 or newer).
ORIGINAL_IMAGE = "mesosphere/dcos-tensorflow:0.0.3-1.5.0"
ORIGINAL_GPU_IMAGE = "mesosphere/dcos-tensorflow:0.0.3-1.5.0-gpu"


class ProgramOptions(Section):
    """Part of `service`."""

    command = Text(
        load_default="",
        metadata=about(
            "Shell command line of every task that has none of its own.",
            change=Change.RESTART,
            examples=['python train.py --model-dir "$CHECKPOINT_DIR"'],
        ),
    )
    job_url = Text(
        load_default="",
        metadata=about(
            "File that every task gets in its working directory; archives are extracted. Agents fetch http, https, ftp "
            "and file addresses, the task's Python all others, such as s3, gs and hdfs, with fsspec. Empty: none.",
            change=Change.RESTART,
            environment="JOB_URL",
            required=True,
            examples=["https://example.com/jobs/mnist.zip", "train.py"],
        ),
    )
    data = Text(
        load_default="",
        metadata=about(
            "Addresses of files that every task gets in its working directory, with commas between. Each agent fetches "
            "them once, and keeps them in its cache; archives are extracted. http, https, ftp and file. Empty: none.",
            change=Change.RESTART,
            examples=["http://example.com/data/mnist.tgz"],
        ),
    )
    data_cache = Flag(
        load_default=True,
        metadata=about(
            "Whether agents keep the files of data. They never look whether one has changed at its address. false: "
            "every task fetches them anew.",
            change=Change.RESTART,
        ),
    )
    job_path = Text(
        load_default="",
        metadata=about(
            "Folder in the job's archive that holds the module job_name.",
            change=Change.RESTART,
            environment="JOB_PATH",
        ),
    )
    job_name = Text(
        load_default="",
        metadata=about(
            "Module, without .py, whose main(server, log_dir, context) is called by tasks that have no command.",
            change=Change.RESTART,
            environment="JOB_NAME",
            required=True,
        ),
    )
    job_context = Text(
        load_default="{}",
        metadata=about(
            "JSON object, as text, that main gets as its context.",
            change=Change.RESTART,
            environment="JOB_CONTEXT",
            examples=['{"learning_rate": 0.5}'],
        ),
    )
    environment = Environment(
        load_default=dict,
        metadata=about(
            "Environment variables of every task; an object of names and values will do where DC/OS is not asked.",
            change=Change.RESTART,
            examples=[[{"name": "TF_CPP_MIN_LOG_LEVEL", "value": "2"}]],
        ),
    )
    python = Text(
        load_default="",
        metadata=about(
            "Interpreter that `python` means in the commands; empty: the executor's own.", change=Change.RESTART
        ),
    )
    tf_image = Text(
        load_default=ORIGINAL_IMAGE,
        metadata=about(
            "Docker image of tasks without GPUs, run by the Mesos containerizer; it needs Python 3.8 or newer for the "
            "executor. The default stands for no image: tasks then run in the agent's own file system.",
            change=Change.RESTART,
            environment="TF_IMAGE",
            required=True,
        ),
    )
    gpu_tf_image = Text(
        load_default=ORIGINAL_GPU_IMAGE,
        metadata=about(
            "The same, for tasks with GPUs.", change=Change.RESTART, environment="GPU_TF_IMAGE", required=True
        ),
    )
