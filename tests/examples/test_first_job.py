"""Type README.md and first-job.md in a fresh account, on a real Mesos."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

from own_runtimes import link_python, tensorflow_2_15

pytestmark = [pytest.mark.usefixtures("real_tensorflow"), pytest.mark.timeout(600)]

HOME = Path(__file__).parents[2]
PAGE = HOME / "docs" / "tutorials" / "first-job.md"
#: A fenced block: language, the rest of its first line, content.
_BLOCK = re.compile(r"^```(\w+)(?: ([^\n]+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PATIENCE = 480
#: Begin of the second epoch, in the file of the worker's output or in the lines of `local run`.
_SECOND_EPOCH = re.compile(r"training: step (?:7[1-9]|[89]\d|\d{3}|\d,\d{3}) of 2,100")
_LATE = re.compile(r"training: step 1,[2-9]\d\d of 2,100")
CACHE = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))


@dataclass(frozen=True, slots=True)
class Block:
    kind: str
    name: str
    text: str


def blocks(text: str = "") -> list[Block]:
    return [Block(kind, name, content) for kind, name, content in _BLOCK.findall(text or PAGE.read_text())]


class Account:
    """A user with an empty home, and the programs of the install step on the PATH.

    `programs`: their folder.
    """

    def __init__(self, folder: Path, programs: Path = Path(sys.executable).parent) -> None:
        self.folder = folder / "first-job"
        self.folder.mkdir()
        home = folder / "home"
        home.mkdir()
        path = f"{programs}:/usr/local/bin:/usr/bin:/bin"
        self.environment = {
            **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
            "HOME": str(home),
            "PATH": path,
            "USER": os.environ.get("USER", "root"),
            "LANG": "C.UTF-8",
            "XDG_CACHE_HOME": CACHE,
            "TF_CPP_MIN_LOG_LEVEL": "2",  # a download takes minutes
        }
        if "PYTHONPATH" in os.environ:
            self.environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
        self.processes: list[subprocess.Popen[str]] = []
        #: Command of each new terminal.
        self.first = ""

    def start(self, text: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            ["bash", "-e", "-c", f"{self.first}\n{text}"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def run(self, text: str, patience: float = PATIENCE) -> str:
        process = self.start(text)
        output, _ = process.communicate(timeout=patience)
        assert 0 == process.returncode, f"{text}\n{output}"
        return output

    def close(self) -> None:
        """Stop jobs by SIGTERM first, so that they stop their Mesos."""
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(60)
                process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()


class Terminal:
    """A running command, whose lines are read as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.lines = process, list[str]()
        self._changed = threading.Condition()
        self._is_open = True
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._is_open = False
            self._changed.notify_all()

    def wait_for(self, pattern: re.Pattern[str]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._is_open or bool(pattern.search(self.text)), PATIENCE)
            assert pattern.search(self.text), self.text

    def finish(self) -> str:
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert 0 == self.process.returncode, self.text
        return self.text

    @property
    def text(self) -> str:
        return "".join(self.lines)


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    made = Account(tmp_path)
    yield made
    made.close()


def keep_picture(job: Terminal) -> None:
    """Save the page in training for README.md, if SCREENSHOTS names a folder."""
    if "SCREENSHOTS" not in os.environ:
        return
    job.wait_for(_LATE)
    address = re.search(r"http://\S+", job.text)
    assert address is not None
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]  # as in tests/framework/web/conftest.py
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        page = browser.new_page(viewport={"width": 1280, "height": 720})
        page.goto(address[0])
        expect(page.locator("#charts svg").first).to_be_visible()
        expect(page.locator("#log")).to_contain_text("Epoch")
        page.screenshot(path=Path(os.environ["SCREENSHOTS"]) / "training.png")
        browser.close()


def follow(account: Account, omitted: str = "", text: str = "") -> Iterator[tuple[Block, str]]:
    """Do what each block says; yield it with its output.

    The last command of a block runs in the first terminal, while the next blocks are for another one. Lines with
    `omitted` are left out of files. Nothing is installed. `text`: instead of the page.
    """
    steps = [block for block in blocks(text) if block.name not in ("libraries", "install")]
    waiting: tuple[Block, Terminal] | None = None
    for index, block in enumerate(steps):
        if waiting is not None and block.name != "another terminal":
            yield waiting[0], waiting[1].finish()
            waiting = None
        following = steps[index + 1].name if index + 1 < len(steps) else ""
        if block.kind in ("python", "json"):
            lines = [line for line in block.text.splitlines() if not omitted or omitted not in line]
            (account.folder / block.name).write_text("\n".join(lines))
        elif block.name == "another terminal" and waiting is not None:
            waiting[1].wait_for(_SECOND_EPOCH)
            yield block, account.run(block.text)
            if block.text.startswith("kill"):
                keep_picture(waiting[1])
        elif block.kind == "sh" and following == "another terminal":
            waiting = (block, Terminal(account.start(block.text)))
        elif block.kind == "sh":
            yield block, account.run(block.text)
    if waiting is not None:
        yield waiting[0], waiting[1].finish()


def test_readme_trains_a_model(account: Account) -> None:
    """The first page that a new user copies from.

    Slow: it trains 30 epochs with two workers.
    """
    section = (HOME / "README.md").read_text().partition("## On a cluster")[0]

    outputs = {block.text.strip(): output for block, output in follow(account, text=section)}

    assert ["dcos-tensorflow open", "dcos-tensorflow try train.py --workers 2"] == list(outputs)
    assert re.match(r"page: http://127\.0\.0\.1:\d+/", outputs["dcos-tensorflow open"])
    assert "2,100 of 2,100" in outputs["dcos-tensorflow try train.py --workers 2"]
    account.run("dcos-tensorflow options validate *-try.json")  # for the next run


@pytest.mark.long
def test_first_job_trains_with_tensorflow_2_15(tmp_path: Path) -> None:
    """The page says what to leave out.

    Slow: two trainings, one with a killed worker.
    """
    assert "With TensorFlow 2.15 or older, leave out `tf_keras`" in PAGE.read_text()
    account = Account(tmp_path, tensorflow_2_15(tmp_path / "venv"))
    try:
        check_first_job(account, omitted="TF_USE_LEGACY_KERAS")
    finally:
        account.close()


def install(account: Account) -> None:
    """Install what the page says; each further terminal activates the environment."""
    text = next(block.text for block in blocks() if block.name == "install")
    account.run(text, patience=400)
    account.first = next(line for line in text.splitlines() if line.startswith("source "))
    assert f"in a second terminal, after `{account.first}`" in PAGE.read_text()


def test_page_names_the_libraries_of_mesos() -> None:
    """Those that scripts/setup installs; ZooKeeper is for tests and `local up`."""
    named = next(block.text for block in blocks() if block.name == "libraries").split()[3:]
    setup = re.search(r"^packages=\((.*)\)$", (HOME / "scripts" / "setup").read_text(), re.MULTILINE)

    assert setup is not None
    assert named == [name for name in setup[1].split() if name != "zookeeper"]
    assert " ".join(named) in (HOME / "docs" / "how-to" / "local.md").read_text()


def check_first_job(account: Account, omitted: str = "") -> None:
    """Do what the page says, and check what it promises."""
    expected = next(block.text for block in blocks() if block.kind == "text")
    outputs = dict[str, str]()
    for block, output in follow(account, omitted):
        outputs[block.text.splitlines()[-1].partition(" -")[0]] = output

    def output_of(words: str) -> str:
        return next(output for command, output in outputs.items() if words in command)

    if omitted:
        expected = re.sub(rf"; {omitted}=1, because .*?Model\.fit", "", expected)
    pattern = re.escape(expected.strip()).replace("0\\.5", r"[\d.]+").replace("1024", r"\d+")
    assert re.search(pattern, output_of("options init"))
    assert "worker-1" in output_of("events")
    assert "first-job" in output_of("history show")
    assert "<svg" in (account.folder / "page.html").read_text()
    runs = account.run("dcos-tensorflow history --json")
    assert 2 == runs.count('"succeeded"'), runs
    job = output_of("local run")
    assert "restart" in job
    assert "worker-0.keras" in job
    assert "2,100 of 2,100" in job


#: Two files in the style of TensorFlow's multi-worker tutorial.
MODEL = """\
import tensorflow as tf

def dataset(batch_size):
    images = tf.random.stateless_uniform((2048, 28, 28), (1, 2))
    labels = tf.cast(tf.reduce_mean(images[:, :14], (1, 2)) > 0.5, tf.int64)
    return tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(2048).repeat().batch(batch_size)

def compiled_model():
    layers = [tf.keras.Input(shape=(28, 28)), tf.keras.layers.Flatten(), tf.keras.layers.Dense(2)]
    model = tf.keras.Sequential(layers)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(loss=loss, optimizer=tf.keras.optimizers.SGD(learning_rate=0.01), metrics=["accuracy"])
    return model
"""
MAIN = """\
import json
import os
import tensorflow as tf
import model_setup

per_worker_batch_size = 32
config = json.loads(os.environ["TF_CONFIG"])
workers = len(config["cluster"]["worker"])
strategy = tf.distribute.MultiWorkerMirroredStrategy()
data = model_setup.dataset(per_worker_batch_size * workers)
with strategy.scope():
    model = model_setup.compiled_model()
model.fit(data, epochs=2, steps_per_epoch=20)
"""
INSTALL = r'pip install --no-deps "tf_keras~=2\.\d+\.0"'


@pytest.mark.parametrize("packages", [pytest.param("tf_keras", marks=pytest.mark.long), "keras-3", "2.15"])
def test_tutorial_trains_or_answer_names_what_to_add(tmp_path: Path, packages: str) -> None:
    """Its code is not changed; without Keras 2, a command is to be run before.

    Slow: two workers train, without Keras 2 after two failures.
    """
    home = tmp_path / "venv"
    if "2.15" == packages:
        programs = tensorflow_2_15(home)
    else:
        programs = link_python(home, without="tf_keras" if packages == "keras-3" else "")
    account = Account(tmp_path, programs)
    (account.folder / "model_setup.py").write_text(MODEL)
    (account.folder / "main.py").write_text(MAIN)
    try:
        if "keras-3" != packages:
            assert "step 40 of 40" in account.run("dcos-tensorflow try main.py --workers 2")
            return
        process = account.start("dcos-tensorflow try main.py --workers 2")
        tried, _ = process.communicate(timeout=PATIENCE)
        account.run("dcos-tensorflow options init multi_worker_mirrored main.py --workers 2")
        account.run("sed -i /TF_USE_LEGACY_KERAS/d options.json")
        process = account.start("dcos-tensorflow local run options.json")
        output, _ = process.communicate(timeout=PATIENCE)
    finally:
        account.close()

    # Before the launch; `try` sets the variable.
    assert re.match(rf"first-job: .*\nnotice: TF_USE_LEGACY_KERAS: needs tf_keras: {INSTALL}\n", tried), tried
    cure = rf'Install tf_keras \({INSTALL}\) and add "environment": {{"TF_USE_LEGACY_KERAS": "1"}} to "service" \(.+\)'
    problem = rf"main\.py:13: Model\.fit of Keras 3\.\d+ does not work with MultiWorkerMirroredStrategy\. {cure}"
    assert re.match(rf"notice: {problem}\n", output), output
    assert re.search(rf"^\S+ failed in .*: worker-\d: {problem}", output, re.MULTILINE), output
    assert "restarted" not in output
