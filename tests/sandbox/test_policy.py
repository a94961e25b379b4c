"""Permissions as people write them: what they become, and which are refused."""

import msgspec
import pytest

from toolsd.launch import Confinement, Network
from toolsd.sandbox import places
from toolsd.sandbox.policy import Permissions, PolicyError, Surroundings, parse_network, resolve
from toolsd.sandbox.tier import Machine, missing


@pytest.fixture
def around(tmp_path):
    for name in ("project/data", "home/me/notes", "run", "python", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "project/toolsd.toml").touch()
    (tmp_path / "project/key").touch()
    return Surroundings(
        directory=str(tmp_path / "project"),
        home=str(tmp_path / "home/me"),
        runtime=str(tmp_path / "run"),
        config=str(tmp_path / "project/toolsd.toml"),
        private=(str(tmp_path / "project/key"),),
        code=(str(tmp_path / "python"),),
    )


def test_nothing_is_granted_by_default(around):
    assert resolve(Permissions(), around) == Confinement()
    assert resolve(Permissions(preset=("pure",), read=("@runtime", "@source"), write=("@scratch",)), around) == (
        Confinement()
    )


def test_grants_become_real_paths(around, tmp_path):
    (tmp_path / "project/link").symlink_to(tmp_path / "other")
    made = resolve(Permissions(preset=("files:ro data", "files:rw link", "network")), around)
    assert made.read == (str(tmp_path / "project/data"),)
    assert made.write == (str(tmp_path / "other"),)
    assert made.network == Network("allow")
    listed = parse_network({"connect": ["API.example.org:443", "[::1]:80"]})
    assert listed == Network("connect", (("api.example.org", 443), ("::1", 80)))
    assert resolve(Permissions(network=listed), around).network == listed


@pytest.mark.parametrize("key", ["read", "write", "exec"])
@pytest.mark.parametrize(
    "grant",
    ["/", "/proc", "/proc/self", "/dev", "/dev/shm", "/sys", ".", "..", "../home", "../home/me", "../run", "./*",
     "missing", "@everything", "link-to-root", "../run/inside"],
)  # fmt: skip
def test_dangerous_grants_are_refused(around, tmp_path, key, grant):
    (tmp_path / "project/link-to-root").symlink_to("/")
    (tmp_path / "run/inside").mkdir()
    with pytest.raises(PolicyError) as refused:
        resolve(Permissions(**{key: (grant,)}), around)
    assert refused.value.key == key
    assert grant in str(refused.value)


def test_the_configuration_may_be_read_but_not_written(around, tmp_path):
    (tmp_path / "project/key").unlink()
    plain = msgspec.structs.replace(around, private=())
    assert resolve(Permissions(read=(".",)), plain).read == (str(tmp_path / "project"),)
    with pytest.raises(PolicyError, match="own permissions"):
        resolve(Permissions(write=(".",)), plain)


def test_a_source_cannot_be_given_the_code_of_all_sources(around):
    assert resolve(Permissions(read=("../python",)), around).read
    with pytest.raises(PolicyError, match="every source"):
        resolve(Permissions(write=("../python",)), around)


@pytest.mark.parametrize("entry", ["host", "host:", ":80", "host:0", "host:65536", "host:http", "::1:80", "[x]:80"])
def test_endpoints_must_be_whole(entry):
    with pytest.raises(PolicyError) as refused:
        parse_network({"connect": [entry]})
    assert refused.value.key == "network"


@pytest.mark.parametrize("value", ["some", 1, [], {}, {"connect": []}, {"connect": [1]}, {"connect": ["a:1"], "b": 1}])
def test_a_network_is_a_word_or_a_list(value):
    with pytest.raises(PolicyError, match="must be"):
        parse_network(value)


@pytest.mark.parametrize(
    ("machine", "processes", "names"),
    [
        (Machine("x86_64", 7, True, False), 4, set()),
        (Machine("x86_64", 1, True, False), 1, set()),
        (Machine("x86_64", 5, True, False), 2, {"signal"}),
        (Machine("x86_64", 0, True, False, (("landlock", "ENOSYS"),)), 1, {"fs", "proc"}),
    ],
)
def test_what_a_machine_lacks_is_named(machine, processes, names):
    gaps = missing(machine, processes)
    assert {name for gap in gaps for name in gap.names} == names
    assert all("Remedy" in str(gap) for gap in gaps)


def test_a_source_owns_its_folder_unless_other_things_lie_in_it(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("home/tools", "config/package", "run"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("home/tools/a.py", "home/b.py", "config/c.py", "d.py"):
        (tmp_path / name).touch()
    config, run = str(tmp_path / "config"), str(tmp_path / "run")

    def own(path):
        return places.own_files(path, config, run)

    assert own(f"{tmp_path}/home/tools/a.py") == ((f"{tmp_path}/home/tools",), ())
    for alone in ("home/b.py", "config/c.py", "d.py"):
        assert own(f"{tmp_path}/{alone}") == ((f"{tmp_path}/{alone}",), ())
    assert own("package.tools") == ((f"{config}/package",), (config,))
