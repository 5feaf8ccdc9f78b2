"""The cluster of the sub-command."""

from pathlib import Path

import pytest

from dcos_command.errors import CommandError
from dcos_command.transport import ClusterConnection, attached_cluster, parse_toml


def a_home(tmp_path, files):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {"DCOS_DIR": str(tmp_path)}


def settings(url, extra=""):
    return f'[core]\ndcos_url = "{url}" # where\ndcos_acs_token = \'a.b\'\nssl_verify = "false"\n{extra}'


def test_attached_cluster_is_used(tmp_path: Path) -> None:
    """With its token and the configured service."""
    home = a_home(
        tmp_path,
        {
            "clusters/1/dcos.toml": settings("http://one"),
            "clusters/2/dcos.toml": settings("http://two/", '[tensorflow]\nservice_name = "dev/mnist"\n'),
            "clusters/2/attached": "",
            "dcos.toml": settings("http://old"),
        },
    )

    assert ClusterConnection("http://two", "a.b", "false", "dev/mnist") == attached_cluster(home)


def test_api_token_is_for_the_configured_cluster_only(tmp_path: Path) -> None:
    """`dcos config set tensorflow.token`; DCOS_URL may name another cluster."""
    home = a_home(tmp_path, {"dcos.toml": settings("http://one", '[tensorflow]\ntoken = "secret"\n')})

    assert ["secret", "secret", ""] == [
        attached_cluster({**home, **variables}).api_token
        for variables in ({}, {"DCOS_URL": "http://one/"}, {"DCOS_URL": "http://two"})
    ]
    assert "secret" not in repr(attached_cluster(home))


@pytest.mark.parametrize(
    ("clusters", "variables", "url"),
    [
        (["clusters/1/dcos.toml", "dcos.toml"], {}, "http://clusters/1/dcos.toml"),
        (["dcos.toml"], {}, "http://dcos.toml"),
        (["dcos.toml"], {"DCOS_URL": "http://env/"}, "http://env"),
        (["dcos.toml"], {"DCOS_DCOS_URL": "http://env/"}, "http://env"),
    ],
)
def test_address_has_an_order_of_precedence(
    tmp_path: Path, clusters: list[str], variables: dict[str, str], url: str
) -> None:
    """The variable of the dcos command in Go, a single cluster, the file before it."""
    home = a_home(tmp_path, {name: settings(f"http://{name}") for name in clusters})

    assert url == attached_cluster({**home, **variables}).url


def test_missing_cluster_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="dcos cluster setup"):
        attached_cluster({"DCOS_DIR": str(tmp_path)})


def test_ssl_verify_is_a_switch_or_a_file() -> None:
    assert None is ClusterConnection("http://one", verify="false").tls()
    assert False is ClusterConnection("https://one", verify="False").tls().check_hostname
    assert True is ClusterConnection("https://one").tls().check_hostname
    with pytest.raises(CommandError, match="/no/file"):
        ClusterConnection("https://one", verify="/no/file").tls()


def test_toml_of_the_dcos_command_is_parsed() -> None:
    """Sections, strings in both quotes, bare values, comments."""
    text = "# x\n[core]\na = \"1 # 2\"\nb='c'\n\n[x.y]\n  d = true  # e\n"

    assert {"core.a": "1 # 2", "core.b": "c", "x.y.d": "true"} == parse_toml(text)
