"""What was made of files that have not changed is not made again."""

import os

from tf_scheduler.package.artefacts import build_cached
from tf_scheduler.package.sources import HOME
from tf_scheduler.package.stamp import remember, remembered, watched


def test_as_long_as_nothing_changes_it_holds(tmp_path):
    """Files and folders: a change, a new file and one that is gone are all noticed."""
    folder, stamp = tmp_path / "sources", tmp_path / "stamp"
    folder.mkdir()
    (folder / "a.py").write_text("a")
    files = (folder, folder / "a.py")

    def after(change):
        remember(stamp, "made", watched(files))
        assert "made" == remembered(stamp)
        change()
        return remembered(stamp)

    assert after(lambda: None) == "made"
    assert after(lambda: (folder / "a.py").write_text("other")) is None
    assert after(lambda: os.utime(folder / "a.py", ns=(1, 1))) is None
    assert after(lambda: (folder / "b.py").write_text("b")) is None
    assert after(lambda: (folder / "a.py").unlink()) is None


def test_a_damaged_or_missing_stamp_says_nothing(tmp_path):
    """Then it is made anew."""
    stamp = tmp_path / "stamp"
    for text in (None, "", "[]", '{"value": "x"}', '{"value": "x", "watched": [1]}'):
        if text is not None:
            stamp.write_text(text)
        assert remembered(stamp) is None


def test_artefacts_are_found_again_without_reading_sources(tmp_path, monkeypatch):
    """And made again when they are gone."""
    first = build_cached(tmp_path, "1", HOME)
    with monkeypatch.context() as patch:
        patch.setattr("tf_scheduler.package.artefacts._scheduler_sources", None)
        assert first == build_cached(tmp_path, "1", HOME)
    for path in (first / "1").iterdir():
        path.unlink()

    assert first == build_cached(tmp_path, "1", HOME)
    assert 3 == len(list((first / "1").iterdir()))
