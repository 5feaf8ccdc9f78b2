"""Which cluster the sub-command talks to."""

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


def test_the_attached_cluster_is_taken(tmp_path):
    """With its token, and the service that the user has set."""
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


def test_the_only_cluster_needs_no_mark(tmp_path):
    """The dcos command treats it so."""
    home = a_home(tmp_path, {"clusters/1/dcos.toml": settings("http://one"), "dcos.toml": settings("http://old")})

    assert "http://one" == attached_cluster(home).url


def test_without_clusters_the_old_file_counts(tmp_path):
    """The dcos command writes it before a cluster is set up."""
    assert "http://old" == attached_cluster(a_home(tmp_path, {"dcos.toml": settings("http://old")})).url


@pytest.mark.parametrize("name", ["DCOS_URL", "DCOS_DCOS_URL"])
def test_the_environment_wins(tmp_path, name):
    """The dcos command in Go passes it on."""
    home = a_home(tmp_path, {"dcos.toml": settings("http://old")})

    assert "http://env" == attached_cluster({**home, name: "http://env/"}).url


def test_no_cluster_is_an_error_that_says_what_to_do(tmp_path):
    """Not a traceback."""
    with pytest.raises(CommandError, match="dcos cluster setup"):
        attached_cluster({"DCOS_DIR": str(tmp_path)})


def test_plain_http_needs_no_tls_and_a_missing_file_of_certificates_is_named():
    """`core.ssl_verify` may be a switch or a file."""
    assert None is ClusterConnection("http://one", verify="false").tls()
    assert False is ClusterConnection("https://one", verify="False").tls().check_hostname
    assert True is ClusterConnection("https://one").tls().check_hostname
    with pytest.raises(CommandError, match="/no/file"):
        ClusterConnection("https://one", verify="/no/file").tls()


def test_toml_as_the_dcos_command_writes_it():
    """Sections, strings in both quotes, bare values, comments."""
    text = "# x\n[core]\na = \"1 # 2\"\nb='c'\n\n[x.y]\n  d = true  # e\n"

    assert {"core.a": "1 # 2", "core.b": "c", "x.y.d": "true"} == parse_toml(text)
