"""`dcos-tensorflow convert` as a process."""

import json
from pathlib import Path

import pytest

FILES = Path(__file__).resolve().parents[1] / "convert" / "files"


def test_converted_file_is_valid(invoke, tmp_path: Path) -> None:
    """Warnings go to standard error, each with its path."""
    for name in ("tfjob.yaml", "tony.xml"):
        target = tmp_path / f"{name}.json"

        code, out, err = invoke("convert", FILES / name, "-o", target)

        assert (0, f"wrote {target}\n") == (code, out), err
        assert "warning: service.strategy: " in err
        assert 0 == invoke("options", "validate", target)[0]


NO_TASKS = '{"apiVersion": "kubeflow.org/v1", "kind": "TFJob"}'
TONY = "<configuration><property><name>tony.ps.memory</name><value>2g</value></property></configuration>"


@pytest.mark.parametrize("arguments", [(), ("--local", "-o", "o.json")])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "service: {name: x}\nworker: {count: 2}\n",
            "job holds options; as JSON: `dcos-tensorflow options init --from job`",
        ),
        (
            "{}",
            "job is not a TFJob or PyTorchJob of Kubeflow (YAML), a tony.xml of TonY, "
            "or an options.json of beta-tensorflow",
        ),
        (NO_TASKS, "job starts no tasks"),
        (TONY, "warning: tony.ps.memory: omitted: without tony.ps.instances, TonY starts no ps\njob starts no tasks"),
    ],
)
def test_file_without_a_job_is_rejected(
    invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, message: str, arguments: tuple[str, ...]
) -> None:
    """With its reason only, and nothing written."""
    monkeypatch.chdir(tmp_path)
    Path("job").write_text(content)

    code, out, err = invoke("convert", "job", *arguments)

    assert (1, "") == (code, out)
    assert err.endswith(f"{message}\n")
    assert ["job"] == [path.name for path in tmp_path.iterdir()]


def test_options_without_a_program_ask_for_it(invoke, tmp_path: Path) -> None:
    (tmp_path / "options.json").write_text('{"worker": {"count": 2}}')
    (tmp_path / "mnist.py").write_text("")
    target = tmp_path / "o.json"

    refused = invoke("convert", tmp_path / "options.json", "--local", "-o", target)
    code, _, err = invoke(
        "convert", tmp_path / "options.json", "--local", "-o", target, "--program", tmp_path / "mnist.py"
    )

    assert (1, True) == (refused[0], "--program PATH" in refused[2])
    assert (0, "python mnist.py") == (code, json.loads(target.read_text())["service"]["command"]), err


def test_convert_keeps_existing_file_without_force(invoke, tmp_path: Path) -> None:
    """With --json, options and warnings are printed too."""
    target = tmp_path / "options.json"
    target.write_text("mine")

    refused = invoke("convert", FILES / "tony.xml", "-o", target)
    forced = invoke("convert", FILES / "tony.xml", "-o", target, "--force", "--json")

    assert (1, "") == refused[:2]
    assert "already exists" in refused[2]
    output = json.loads(forced[1])
    assert output["options"] == json.loads(target.read_text())
    assert {"path", "message"} == set(output["warnings"][0])


def test_failed_conversion_prints_its_warnings(invoke, tmp_path: Path) -> None:
    """A skipped field is often the reason."""
    lines = (FILES / "tony.xml").read_text().splitlines()
    (tmp_path / "job.xml").write_text("\n".join(line for line in lines if "python mnist.py" not in line))

    code, out, err = invoke("convert", tmp_path / "job.xml")

    assert (1, "") == (code, out)
    assert "warning: tony.wonder: omitted: unknown field" in err
    assert "add one with convert --command" in err
    command = "python mnist.py --steps 1000"
    assert 0 == invoke("convert", tmp_path / "job.xml", "--command", command, "-o", tmp_path / "options.json")[0]
    assert command == json.loads((tmp_path / "options.json").read_text())["service"]["command"]
