"""The folder of the package's sources."""

from __future__ import annotations

from pathlib import Path

from tf_scheduler.package.sources import package_folder


def test_installation_uses_sources_of_the_wheel(tmp_path: Path) -> None:
    (tmp_path / "site" / "dcos_sources" / "package").mkdir(parents=True)

    assert tmp_path / "site" / "dcos_sources" / "package" == package_folder(tmp_path / "site", tmp_path)


def test_checkout_uses_its_own_sources(tmp_path: Path) -> None:
    assert tmp_path / "package" == package_folder(tmp_path / "framework", tmp_path)
