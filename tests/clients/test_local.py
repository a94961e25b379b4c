"""A coordinator embedded in the program: no daemon, nothing left behind."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import toolsd
from toolsd import AsyncClient, ConfigError, NameCollision, UsageError

from .conftest import PATIENCE, WORKSHOP, alive, eventually

CONFIG = WORKSHOP / "toolsd.toml"


def runs() -> set[str]:
    return {path.name for path in Path(os.environ["XDG_RUNTIME_DIR"], "toolsd").glob("run-*")}


def test_a_turn_without_a_daemon() -> None:
    before = runs()
    with toolsd.local(CONFIG) as client:
        assert [r.text for r in client.run([("echo", {"text": "a"}), ("side_echo", {"text": "b"})])] == ["a", "b"]
        workers = [w["pid"] for s in client.ps()["sources"] for w in s["workers"] if w["pid"]]
        assert workers
        with toolsd.connect(client.address) as other:
            assert other.call("echo", {"text": "from beside"}).text == "from beside"
    assert not runs() - before
    assert not any(alive(pid) for pid in workers)


CLOSING = """
import os, pathlib, time
import toolsd

source = toolsd.Source("closing")

@source.on_close
def leave():
    pathlib.Path(__file__).with_name("out").joinpath("closed").touch()

@source.tool
def where():
    return os.getpid()

@source.tool
def naps(ready: str):
    pathlib.Path(ready).touch()
    time.sleep(600)
"""


@pytest.fixture
def closing(tmp_path: Path) -> Path:
    (tmp_path / "closing.py").write_text(CLOSING)
    (tmp_path / "out").mkdir()
    (tmp_path / "toolsd.toml").write_text(
        '[source.closing]\nkind = "python"\npath = "closing.py"\npermissions.write = ["out"]\n'
    )
    return tmp_path


def test_sources_close_with_the_client(closing: Path) -> None:
    with toolsd.local(closing / "toolsd.toml") as client:
        worker = client.call("where").content
    assert (closing / "out" / "closed").exists()
    assert not alive(worker)


def test_sources_close_when_the_program_ends_or_forgets_its_client(closing: Path) -> None:
    script = """
import gc, sys, toolsd
client = toolsd.local(sys.argv[1])
client.call("where")
if sys.argv[2] != "ends":
    loop = client._embedded._running._loop
    client.itself = client
    del client
    gc.collect() if sys.argv[2] == "forgets" else loop.call_soon_threadsafe(gc.collect)
"""
    for how in ("ends", "forgets", "forgets-there"):
        ran = subprocess.run(
            [sys.executable, "-c", script, str(closing / "toolsd.toml"), how],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        (closing / "out" / "closed").unlink()


def test_what_runs_when_the_client_closes_is_cancelled_and_the_source_closes(closing: Path) -> None:
    client = toolsd.local(closing / "toolsd.toml").open()
    raised: list[BaseException] = []

    def naps() -> None:
        try:
            client.call("naps", {"ready": str(closing / "out" / "ready")})
        except toolsd.ToolsdError as error:
            raised.append(error)

    thread = threading.Thread(target=naps)
    thread.start()
    eventually((closing / "out" / "ready").exists, "the tool runs")
    client.close()
    thread.join(PATIENCE)
    assert [type(error) for error in raised] == [UsageError]
    assert (closing / "out" / "closed").exists()


def test_async() -> None:
    async def test() -> None:
        async with AsyncClient.local(str(CONFIG)) as client:
            assert (await client.call("echo", {"text": "a"})).text == "a"

    asyncio.run(asyncio.wait_for(test(), PATIENCE))


def test_two_at_once_do_not_know_each_other() -> None:
    with toolsd.local(CONFIG) as one, toolsd.local(CONFIG) as two:
        assert one.call("where").content != two.call("where").content


def test_mistakes_of_the_configuration_come_out_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "toolsd.toml"
    path.write_text("[source.x]\nkind = 'python'\npath = 'x.py'\ncolour = 'red'\n")
    with pytest.raises(ConfigError, match="colour"), toolsd.local(path):
        pass
    with pytest.raises(ConfigError), toolsd.local(tmp_path / "absent.toml"):
        pass


def test_a_required_source_that_does_not_start_fails_the_start(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import no_such_module_at_all\n")
    (tmp_path / "toolsd.toml").write_text("[source.x]\nkind = 'python'\npath = 'broken.py'\nrequired = true\n")
    before = runs()
    with pytest.raises(ConfigError, match=r"x(?s:.)*no_such_module_at_all"), toolsd.local(tmp_path / "toolsd.toml"):
        pass
    assert not runs() - before


def test_colliding_names_fail_the_start_and_name_both_sources(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("import toolsd\n@toolsd.tool\ndef same() -> int:\n    return 1\n")
    stanza = "[source.{}]\nkind = 'python'\npath = 'one.py'\n"
    (tmp_path / "toolsd.toml").write_text(stanza.format("first") + stanza.format("second"))
    before = runs()
    with pytest.raises(NameCollision, match=r"same(?s:.)*'first'|'first'(?s:.)*same") as refused:
        toolsd.local(tmp_path / "toolsd.toml").open()
    assert "'second'" in str(refused.value)
    assert not runs() - before


def test_a_broken_source_harms_only_its_own_calls(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import no_such_module_at_all\n")
    text = CONFIG.read_text().replace('path = "', f'path = "{WORKSHOP}/').replace("gates", f"{WORKSHOP}/gates")
    (tmp_path / "toolsd.toml").write_text(text + "\n[source.x]\nkind = 'python'\npath = 'broken.py'\n")
    with toolsd.local(tmp_path / "toolsd.toml") as client:
        assert client.call("echo", {"text": "fine"}).text == "fine"
        assert "echo" in [t.name for t in client.tools()]  # this waits until all sources were looked at
        broken = next(s for s in client.ps()["sources"] if s["name"] == "x")
        assert "no_such_module_at_all" in broken["failure"]["message"]


def test_an_exit_without_close_leaves_nothing() -> None:
    before = runs()
    script = """
import sys, toolsd
client = toolsd.local(sys.argv[1])
print(client.call("where").content, flush=True)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script, str(CONFIG)], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert not alive(int(ran.stdout))
    assert not runs() - before


def test_a_killed_program_takes_its_workers_with_it() -> None:
    script = """
import os, sys, toolsd
client = toolsd.local(sys.argv[1])
print(client.call("where").content, flush=True)
os.kill(os.getpid(), 9)
"""
    ran = subprocess.run([sys.executable, "-c", script, str(CONFIG)], stdout=subprocess.PIPE, text=True, check=False)
    assert ran.returncode == -9
    eventually(lambda: not alive(int(ran.stdout)), "its worker is gone")
    with toolsd.local(CONFIG):
        pass  # sweeps the directory of the dead one


def test_a_fork_of_the_program_is_told(tmp_path: Path) -> None:
    script = """
import os, sys, toolsd
client = toolsd.local(sys.argv[1]).open()
pid = os.fork()
if not pid:
    try:
        client.call("where")
    except toolsd.UsageError as error:
        os._exit(0 if "fork" in str(error) else 2)
    os._exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert client.call("echo", {"text": "x"}).ok
client.close()
"""
    ran = subprocess.run([sys.executable, "-c", script, str(CONFIG)], timeout=PATIENCE, check=False)
    assert ran.returncode == 0


def test_a_closed_local_client_stays_closed() -> None:
    client = toolsd.local(CONFIG)
    with pytest.raises(UsageError, match="not started"):
        _ = client.address
    client.open()
    client.close()
    client.close()
    with pytest.raises(UsageError, match="closed"):
        client.call("echo", {"text": "x"})
