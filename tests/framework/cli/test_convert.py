"""`dcos-tensorflow convert`, as a user runs it."""

import json
from pathlib import Path

FILES = Path(__file__).resolve().parents[1] / "convert" / "files"


def test_what_convert_writes_passes_validate(run, tmp_path):
    """Both kinds of files; warnings on standard error, each with its place."""
    for name in ("tfjob.yaml", "tony.xml"):
        target = tmp_path / f"{name}.json"

        code, out, err = run("convert", FILES / name, "-o", target)

        assert (0, f"wrote {target}\n") == (code, out), err
        assert "warning: service.strategy: " in err
        assert 0 == run("options", "validate", target)[0]


def test_a_file_that_is_there_stays(run, tmp_path):
    """Unless --force is given; JSON has options and warnings."""
    target = tmp_path / "options.json"
    target.write_text("mine")

    refused = run("convert", FILES / "tony.xml", "-o", target)
    forced = run("convert", FILES / "tony.xml", "-o", target, "--force", "--json")

    assert (1, "") == refused[:2]
    assert "is there already" in refused[2]
    told = json.loads(forced[1])
    assert told["options"] == json.loads(target.read_text())
    assert {"path", "message"} == set(told["warnings"][0])


def test_what_was_left_out_is_told_when_the_conversion_fails(run, tmp_path):
    """It is often the reason."""
    (tmp_path / "job.xml").write_text((FILES / "tony.xml").read_text().replace("python mnist.py", ""))

    code, out, err = run("convert", tmp_path / "job.xml")

    assert (1, "") == (code, out)
    assert "warning: tony.wonder: is not known here" in err
    assert "say it: convert --command" in err
