"""Where the sources of the package are found."""

from __future__ import annotations

from tf_scheduler.package.sources import package_folder


def test_an_installation_reads_what_came_with_its_wheel(tmp_path):
    """Whatever lies above its folder."""
    (tmp_path / "site" / "dcos_sources" / "package").mkdir(parents=True)

    assert tmp_path / "site" / "dcos_sources" / "package" == package_folder(tmp_path / "site", tmp_path)


def test_a_checkout_reads_its_own(tmp_path):
    """The folder package/ beside framework/."""
    assert tmp_path / "package" == package_folder(tmp_path / "framework", tmp_path)
