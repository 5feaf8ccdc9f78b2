"""`dcos-tensorflow convert` as a process."""

import json
from pathlib import Path

FILES = Path(__file__).resolve().parents[1] / "convert" / "files"


def test_converted_file_is_valid(run, tmp_path: Path) -> None:
    """Warnings go to standard error, each with its path."""
    for name in ("tfjob.yaml", "tony.xml"):
        target = tmp_path / f"{name}.json"

        code, out, err = run("convert", FILES / name, "-o", target)

        assert (0, f"wrote {target}\n") == (code, out), err
        assert "warning: service.strategy: " in err
        assert 0 == run("options", "validate", target)[0]


def test_options_in_yaml_become_json(run, tmp_path: Path) -> None:
    """As the error about YAML says."""
    path = tmp_path / "options.yaml"
    path.write_text("service:\n  name: x\n  command: python x.py\nworker: {count: 2}\n")

    code, out, _ = run("convert", path)

    document = {"service": {"name": "x", "command": "python x.py"}, "worker": {"count": 2}}
    assert (0, document) == (code, json.loads(out))


def test_convert_keeps_existing_file_without_force(run, tmp_path: Path) -> None:
    """With --json, options and warnings are printed too."""
    target = tmp_path / "options.json"
    target.write_text("mine")

    refused = run("convert", FILES / "tony.xml", "-o", target)
    forced = run("convert", FILES / "tony.xml", "-o", target, "--force", "--json")

    assert (1, "") == refused[:2]
    assert "already exists" in refused[2]
    output = json.loads(forced[1])
    assert output["options"] == json.loads(target.read_text())
    assert {"path", "message"} == set(output["warnings"][0])


def test_failed_conversion_prints_its_warnings(run, tmp_path: Path) -> None:
    """A skipped field is often the reason."""
    (tmp_path / "job.xml").write_text((FILES / "tony.xml").read_text().replace("python mnist.py", ""))

    code, out, err = run("convert", tmp_path / "job.xml")

    assert (1, "") == (code, out)
    assert "warning: tony.wonder: omitted: unknown field" in err
    assert "add one with convert --command" in err
