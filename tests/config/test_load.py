"""`toolsd.toml` as a whole: effective values, their origin, and every mistake with its line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolsd import config
from toolsd.config import Config, ConfigMistakes
from toolsd.config.schema import SHARED, SOURCE, flat
from toolsd.core.model import SourceSpec
from toolsd.errors import ConfigError
from toolsd.launch import Confinement, Launch, Network

SOURCE_LINES = '[source.notes]\nkind = "python"\npath = "notes.py"\n'


def load(tmp_path: Path, text: str, **environ: str) -> Config:
    file = tmp_path / "toolsd.toml"
    file.write_text(text)
    return config.load(file, environ)


def mistakes(tmp_path: Path, text: str, **environ: str) -> dict[str, tuple[int | None, str, str]]:
    with pytest.raises(ConfigMistakes) as caught:
        load(tmp_path, text, **environ)
    assert caught.value.exit_status == 78
    return {m.key: (m.line, m.message, m.hint or "") for m in caught.value.mistakes}


def test_a_source_with_nothing_set_is_the_core_default(tmp_path: Path) -> None:
    (spec,) = load(tmp_path, SOURCE_LINES).sources
    assert spec == SourceSpec(
        name="notes", launch=Launch(kind="python", path=str(tmp_path / "notes.py"), directory=str(tmp_path))
    )


def test_layers_and_origins(tmp_path: Path) -> None:
    text = (
        '[defaults]\nbatch_timeout = "none"\nqueue = { turns = 9, wait = "1m" }\n' + SOURCE_LINES + "queue.turns = 3\n"
    )
    loaded = load(tmp_path, text)
    assert (loaded.sources[0].batch_timeout, loaded.sources[0].queue_turns, loaded.sources[0].queue_wait) == (
        None,
        3,
        60,
    )
    origins = {setting.key: (setting.value, setting.origin, setting.line) for setting in loaded.settings}
    assert origins["source.notes.batch_timeout"] == ("none", "[defaults]", 2)
    assert origins["source.notes.queue.turns"] == ("3", "[source.notes]", 7)
    assert origins["source.notes.queue.wait"] == ("1m", "[defaults]", 3)
    assert origins["source.notes.replicas"] == ("1", "default", None)


def test_sources_stay_in_file_order(tmp_path: Path) -> None:
    names = ["zeta", "alpha", "mid"]
    text = "".join(f'[source.{name}]\nkind = "python"\npath = "{name}.py"\n' for name in names)
    assert [spec.name for spec in load(tmp_path, text).sources] == names


def test_every_option_can_be_set(tmp_path: Path) -> None:
    written = {
        "start": '"eager"', "replicas": "2", "max_batches": "4", "start_timeout": '"1s"', "batch_timeout": '"2s"',
        "cancel_grace": '"3s"', "stop_timeout": '"4s"', "queue.turns": "5", "queue.bytes": '"1MiB"',
            "queue.wait": '"6s"',
        "on_crash": '"fail_calls"', "restart.backoff": '"1s..2s"', "restart.max": "7", "restart.within": '"8s"',
        "restart.stable_after": '"9s"', "restart.cool_down": '"10s"', "limits.memory": '"1GiB"',
        "limits.cpu_time": '"11s"', "limits.open_files": "64", "limits.file_size": '"1MiB"', "limits.threads": "12",
            "recycle.turns": "13", "recycle.age": '"14h"', "recycle.rss": '"2GiB"',
        "limits.processes": "2", "limits.scratch_size": '"1MiB"',
        "permissions.mode": '"off"', "permissions.preset": '["pure"]', "permissions.read": '["/usr/share"]',
        "permissions.write": '["@scratch"]', "permissions.exec": '["/usr/bin"]', "permissions.network": '"loopback"',
        "permissions.file_metadata": "true", "permissions.tiers": '["cgroup"]',
        "result_max": '"1KiB"', "env_pass": '["HOME"]', "required": "true", "affinity": '"session"',
    }  # fmt: skip
    assert written.keys() == flat(SOURCE).keys() - {"kind", "path"}
    text = SOURCE_LINES + "".join(f"{key} = {value}\n" for key, value in written.items())
    text += "[source.notes.tool.save]\ntimeout = '13s'\nidempotent = true\n"
    (tmp_path / "toolsd.toml").write_text(text)
    loaded = config.load(tmp_path / "toolsd.toml", {"HOME": "/h", "PATH": "/p"}, allow_unsandboxed=True)
    (spec,) = loaded.sources
    assert (spec.start, spec.replicas, spec.max_batches, spec.required, spec.affinity) == (
        "eager",
        2,
        4,
        True,
        "session",
    )
    assert (spec.restart.backoff_min, spec.restart.backoff_max, spec.restart.max) == (1.0, 2.0, 7)
    assert spec.launch.limits.memory == 1 << 30
    assert spec.launch.env == {"HOME": "/h"}
    assert (spec.launch.tools["save"].timeout, spec.launch.tools["save"].idempotent) == (13.0, True)
    set_here = {setting.key for setting in loaded.settings if setting.origin.startswith("[source.")}
    assert {f"source.notes.{key}" for key in written} <= set_here


def test_permissions_are_resolved_and_refused_by_line(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "key").touch()
    good = SOURCE_LINES + 'permissions = { read = ["data"], network = { connect = ["api.example.org:443"] } }\n'
    assert load(tmp_path, good).sources[0].launch.confinement == Confinement(
        read=(str(tmp_path / "data"),), network=Network("connect", (("api.example.org", 443),))
    )
    found = mistakes(
        tmp_path,
        SOURCE_LINES + 'env = { T = { from_file = "key" } }\n[source.notes.permissions]\nread = ["key"]\n'
        + 'network = "all"\nmode = "off"\n[source.more]\nkind = "python"\npath = "m.py"\npermissions.write = ["."]\n'
        + 'permissions.devices = []\n',
    )  # fmt: skip
    lines = {key: line for key, (line, *_) in found.items() if "permissions" in key}
    at = "source.notes.permissions."
    assert lines == {
        f"{at}read": 6,
        f"{at}network": 7,
        f"{at}mode": 8,
        "source.more.permissions.write": 12,
        "source.more.permissions.devices": 13,
    }
    assert "--allow-unsandboxed" in found[f"{at}mode"][2]


def test_many_mistakes_at_once_each_with_its_line(tmp_path: Path) -> None:
    found = mistakes(
        tmp_path,
        '[daemon]\nstop_timeout = 20\n[defaults]\nqueue = { wiat = "1s" }\n[source.notes]\nkind = "lua"\n'
        'path = "notes.py"\nreplica = 2\nlimits.memory = 512\n[source.notes.tool.save]\ntimeout = "soon"\n'
        "[source.empty]\n[sauce]\n",
    )  # fmt: skip
    assert {key: line for key, (line, *_) in found.items()} == {
        "daemon.stop_timeout": 2,
        "defaults.queue.wiat": 4,
        "source.notes.kind": 6,
        "source.notes.replica": 8,
        "source.notes.limits.memory": 9,
        "source.notes.tool.save.timeout": 11,
        "source.empty": 12,
        "sauce": 13,
    }
    assert '"20s"' in found["daemon.stop_timeout"][2]
    assert '"wait"' in found["defaults.queue.wiat"][2]
    assert '"python"' in found["source.notes.kind"][1]
    assert '"replicas"' in found["source.notes.replica"][2]
    assert '"source"' in found["sauce"][2]


def test_secrets_come_by_reference_and_are_never_shown(tmp_path: Path) -> None:
    secret = tmp_path / "key"
    secret.write_text("hunter3\n")
    secret.chmod(0o600)
    text = SOURCE_LINES + 'env = { API_TOKEN = { from_env = "T" }, DB = { from_file = "key" }, MODE = "fast" }\n'
    loaded = load(tmp_path, text, T="hunter2")
    assert loaded.sources[0].launch.env == {"API_TOKEN": "hunter2", "DB": "hunter3", "MODE": "fast"}
    assert "hunter" not in repr(loaded.settings)
    assert "hunter" not in repr(loaded.sources)


def test_secrets_that_are_missing_open_or_written_out(tmp_path: Path) -> None:
    (tmp_path / "open").write_text("x")
    (tmp_path / "open").chmod(0o644)
    found = mistakes(
        tmp_path,
        SOURCE_LINES + "[source.notes.env]\n"
        'A = { from_env = "NOT_SET" }\nB = { from_file = "open" }\nC = { from_file = "gone" }\n'
        'D_TOKEN = "hunter2"\nE = 5\nF = { from_env = "X", from_file = "y" }\n"G H" = "x"\n',
    )  # fmt: skip
    at = "source.notes.env."
    assert "NOT_SET is not set" in found[at + "A.from_env"][1]
    assert "0644" in found[at + "B.from_file"][1] and "chmod 600" in found[at + "B.from_file"][2]
    assert "No such file" in found[at + "C.from_file"][1]
    assert "by reference" in found[at + "D_TOKEN"][1]
    assert {at + "E", at + "F", at + '"G H"'} <= found.keys()
    assert "hunter2" not in str(found)


@pytest.mark.parametrize(
    ("text", "line"),
    [("[source\n", 1), ("a = 1\na = 2\n", 2), ("x = [1,\n2", 2), ("x = " + "[" * 5000, None)],
)
def test_what_is_not_toml_names_the_line(tmp_path: Path, text: str, line: int | None) -> None:
    ((found, *_),) = mistakes(tmp_path, text).values()
    assert found == line


def test_bytes_that_are_not_utf8_name_the_line(tmp_path: Path) -> None:
    file = tmp_path / "toolsd.toml"
    file.write_bytes(b'[source.a]\npath = "\xff"\n')
    with pytest.raises(ConfigMistakes, match=r":2: is not UTF-8"):
        config.load(file)


def test_windows_line_ends_and_a_byte_order_mark_do_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "toolsd.toml"
    file.write_bytes(b"\xef\xbb\xbf" + (SOURCE_LINES + "replicas = 2\n").replace("\n", "\r\n").encode())
    loaded = config.load(file)
    assert next(s.line for s in loaded.settings if s.key == "source.notes.replicas") == 4


def test_a_file_without_sources_says_how_to_add_one(tmp_path: Path) -> None:
    assert "[source.notes]" in mistakes(tmp_path, "")[""][2]


def test_mcp_servers_are_recognised(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"git": {"command": "uvx"}, "fs": {}}}')
    with pytest.raises(ConfigError, match=r"2 MCP servers \(fs, git\)"):
        config.load(file)


def test_places_where_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    with pytest.raises(ConfigError, match="no configuration found"):
        config.find(environ)
    personal = tmp_path / "xdg" / "toolsd" / "toolsd.toml"
    personal.parent.mkdir(parents=True)
    personal.write_text(SOURCE_LINES)
    assert config.find(environ) == personal
    (tmp_path / "toolsd.toml").write_text(SOURCE_LINES)
    assert config.find(environ) == Path("toolsd.toml")


@pytest.mark.parametrize("name", ["gone.toml", "."])
def test_files_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        config.load(os.path.join(tmp_path, name))


anything = st.recursive(
    st.one_of(
        st.integers(-3, 3).map(str), st.sampled_from(["true", "1.5", '"20s"', '"none"', '"eager"', '"x"', "1979-05-27"])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2).map(lambda items: f"[{', '.join(items)}]"),
        st.dictionaries(st.sampled_from(["turns", "wait", "x", "from_env"]), inner, max_size=2).map(
            lambda table: "{" + ", ".join(f"{key} = {value}" for key, value in table.items()) + "}"
        ),
    ),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from([*SHARED, "kind", "path", "env", "tool", "bogus"]), anything))
def test_any_values_end_in_a_config_or_in_mistakes_with_lines(
    tmp_path_factory: pytest.TempPathFactory, pairs: dict[str, str]
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.toml"
    file.write_text("[source.x]\n" + "".join(f"{key} = {value}\n" for key, value in pairs.items()))
    try:
        loaded = config.load(file, {})
    except ConfigMistakes as found:
        assert all(mistake.line for mistake in found.mistakes)
    else:
        assert len(loaded.sources) == 1
