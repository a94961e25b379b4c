"""Each limit of a source, passed in a real worker of a real coordinator: how it ends, and which key it names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from tests.sandbox.test_sources import ended, hostile

import toolsd
from toolsd.sandbox import cgroup

MiB = 1 << 20
# Fills shared memory, which no limit of a single process counts.
FILL = "area = mmap.mmap(-1, {0} << 20)\nfor at in range(0, len(area), 4096): area[at] = 1\n"
CHILD = "pid = os.fork()\nif pid == 0:\n    {0}\n    os._exit(0)\nout = os.waitpid(pid, 0)[1]"
CROWD = """
for _ in range(3):
    if os.fork() == 0:
        hoard = bytearray(os.urandom(1)) * (120 << 20)
        time.sleep(60)
time.sleep(60)
"""
TREE = "limits.memory = '256MiB'\nlimits.processes = 6\n"


def child(code: str) -> str:
    return CHILD.format(code.replace("\n", "\n    "))


def nowhere() -> cgroup.Base:
    raise cgroup.Unavailable("/sys/fs/cgroup/memory/x: Read-only file system")


def groups() -> set[str]:
    """All groups that any node here has, by path."""
    try:
        folders = cgroup.find().folders
    except cgroup.Unavailable:
        return set()
    return {str(path) for folder in folders for path in Path(folder).glob("toolsd-*/w*")}


@pytest.fixture(params=["cgroup", "polled"])
def way(request, monkeypatch):
    """How the memory of a tree is bounded."""
    if request.param == "polled":
        monkeypatch.setattr(cgroup, "find", nowhere)
    else:
        try:
            cgroup.find()
        except cgroup.Unavailable as unavailable:
            pytest.skip(f"this user can make no control group: {unavailable}")
    return request.param


def high_water() -> int:
    text = Path("/proc/self/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmHWM"))


def test_memory_is_bounded_over_the_whole_tree(tmp_path, way):
    hogs = {
        "the worker's shared memory": FILL.format(600),
        "a child's shared memory": child(FILL.format(600)) + "\ntime.sleep(60)",
        "the sum of several": CROWD,
    }
    before, highest = groups(), high_water()
    with hostile(tmp_path, TREE) as client:
        for what, code in hogs.items():
            failed = ended(client, code)
            assert (failed.code, failed.evidence.verdict) == ("worker_out_of_memory", "memory"), (what, str(failed))
            assert "limits.memory" in str(failed), what
            assert ("polled" in str(failed)) == (way == "polled"), what
            assert client.call("run", {"code": "out = 'alive'"}).text == "alive"
        assert bool(groups() - before) == (way == "cgroup")
    assert groups() <= before
    assert high_water() - highest < 100 * MiB


def test_a_worker_that_lost_a_child_to_its_memory_limit_has_not_succeeded(tmp_path):
    """The worker sees a dead child, and may take it for anything: its result is not believed."""
    try:
        cgroup.find()
    except cgroup.Unavailable as unavailable:
        pytest.skip(f"this user can make no control group: {unavailable}")
    with hostile(tmp_path, TREE) as client:
        failed = ended(client, child(FILL.format(600)))
        assert (failed.code, failed.evidence.verdict) == ("worker_out_of_memory", "memory")
        assert [entry.state for entry in failed.ledger] == ["finished"]
        assert client.call("run", {"code": child("pass")}).text == "0"


UNPROVEN = """
import json, os, sys, tempfile
from toolsd.launch import Confinement, Limits
from toolsd.sandbox import canary, cgroup, exhaust, places, seal, tier
limits = Limits(memory=512 << 20, cpu_time=60, file_size=1 << 20, threads=8, processes=3)
found = []
with tempfile.TemporaryDirectory() as room, tempfile.TemporaryDirectory() as scratch:
    sealed = seal.prepare(
        tier.probe(), Confinement(), own=((), ()), code=places.code(), scratch=scratch, worker=1, processes=3
    )
    if sealed.uid is not None:
        os.chown(scratch, sealed.uid, sealed.uid)
    found.append(canary.prove(sealed, limits, room, scratch))
    exhaust.enter = lambda limits, own_uid: None
    found.append(canary.prove(sealed, limits, room, scratch))
try:
    home = cgroup.Home(cgroup.find())
except cgroup.Unavailable:
    home = None
for memory, tasks in ((8, 1), (8, 2), (64, 1)) if home else ():
    group = home.make("g", memory << 20, tasks)
    found.append(canary.prove_group(group))
    group.remove()
if home:
    home.close()
print(json.dumps([[breach.attempt for breach in breaches] for breaches in found]))
"""


def test_the_canary_finds_a_limit_that_is_not_held(person):
    done = person.run("-c", UNPROVEN)
    assert done.returncode == 0, done.stderr
    held, loose, *grouped = json.loads(done.stdout)
    assert held == []
    assert {key for what in loose for key in what.split() if key.startswith("limits.")} == {
        "limits.open_files", "limits.file_size", "limits.memory", "limits.threads", "limits.processes",
    }  # fmt: skip
    assert "having no limit of CPU time" in loose
    assert [len(breaches) for breaches in grouped] in ([0, 1, 1], [])


def test_a_demanded_cgroup_that_cannot_be_had_refuses_the_source(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroup, "find", nowhere)
    with hostile(tmp_path, "permissions.tiers = ['cgroup']") as client:
        assert not client.call("run", {"code": ""}).ok
        (source,) = client.ps()["sources"]
        for part in ("tree", "Read-only file system", "Delegate=", "permissions.tiers"):
            assert part in source["failure"]["message"]
    with hostile(tmp_path, TREE) as client:
        assert client.call("run", {"code": "out = 1"}).text == "1"


def test_a_tier_nobody_knows_is_a_mistake(tmp_path):
    with pytest.raises(toolsd.ConfigError, match="cgroup"), hostile(tmp_path, "permissions.tiers = ['vm']"):
        pass


def test_what_says_how_memory_is_bounded(tmp_path):
    with hostile(tmp_path, TREE + "permissions.tiers = ['cgroup']") as client:
        assert [tool.sandbox for tool in client.tools()] == ["kernel+cgroup"]
    command = [sys.executable, "-m", "toolsd", "sandbox"]
    explained = subprocess.run(
        [*command, "explain", "hostile", "--json", "-c", str(tmp_path / "toolsd.toml")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    checked = subprocess.run([*command, "check", "--json"], capture_output=True, text=True, timeout=60, check=False)
    tree = json.loads(checked.stdout)["tree"]
    policy = {line["what"]: line["enforced_by"] for line in json.loads(explained.stdout)["policy"]}
    try:
        version = f"cgroup version {cgroup.find().version}"
        assert (explained.returncode, tree, policy["memory of all its processes"]) == (0, version, version)
    except cgroup.Unavailable:
        assert (explained.returncode, tree) == (78, "polled")
        assert "polled" in policy["memory of all its processes"]
        assert json.loads(explained.stdout)["missing"]


def wait_for(condition, what: str, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def test_what_a_killed_daemon_left_is_swept_and_nothing_else(tmp_path):
    try:
        base = cgroup.find()
    except cgroup.Unavailable as unavailable:
        pytest.skip(f"this user can make no control group: {unavailable}")
    with hostile(tmp_path, TREE) as client:
        client.call("run", {"code": ""})
        mine = groups()
        lasting = "\n".join(
            ["import toolsd, sys", "with toolsd.local(sys.argv[1]) as client:",
             "    client.call('run', {'code': 'if os.fork() == 0: os.setsid(); time.sleep(600)'})",
             "    print('ready', flush=True)", "    sys.stdin.read()"]
        )  # fmt: skip
        command = [sys.executable, "-c", lasting, str(tmp_path / "toolsd.toml")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as daemon:
            assert daemon.stdout.readline() == "ready\n"
            theirs = groups() - mine
            assert theirs
            (forkserver,) = psutil.Process(daemon.pid).children()
            forkserver.suspend()  # so that it cleans nothing up
            daemon.kill()
            forkserver.kill()
        survivors = {path: Path(path, "cgroup.procs").read_text() for path in theirs}
        wait_for(lambda: groups() == mine | theirs, "the groups of a killed daemon stay until somebody sweeps them")
        with hostile(tmp_path):  # its start sweeps
            wait_for(lambda: groups() == mine, f"swept are the groups of the dead and no others ({survivors})")
        assert client.call("run", {"code": "out = 'alive'"}).text == "alive"
    assert not [home for folder in base.folders for home in Path(folder).glob(f"toolsd-{os.getuid()}-*")]


def test_each_limit_names_the_key_to_raise(tmp_path):
    limits = (
        "result_max = '1000B'\nbatch_timeout = '500ms'\n"
        "[source.hostile.limits]\nprocesses = 3\nthreads = 8\nopen_files = 64\nfile_size = '1MiB'\nmemory = '256MiB'\n"
    )
    in_slots = {
        "result_max": "out = 'x' * 2000",
        "limits.memory": "bytearray(2 << 30)",
        "limits.file_size": "open('big', 'wb').write(bytes(2 << 20))",
        "limits.open_files": "held = []\nwhile True: held.append(os.dup(0))",
        "limits.threads": "while True: threading.Thread(target=time.sleep, args=(0.1,), daemon=True).start()",
        "limits.processes": (
            "while True:\n    try: pid = os.fork()\n    except OSError: os.killpg(0, 0); raise\n"
            "    if pid == 0: time.sleep(0.1); os._exit(0)"
        ),
    }
    with hostile(tmp_path, limits) as client:
        for key, code in in_slots.items():
            result = client.call("run", {"code": code})
            assert not result.ok
            assert result.error.details["key"] == key, (key, result.text)
        slow = ended(client, "time.sleep(60)")
        assert (slow.code, slow.evidence.verdict) == ("batch_timeout", "wall")
        assert "batch_timeout" in str(slow)
        assert "limits.memory" in str(ended(client, "hoard = []\nwhile True: hoard.append(bytes(1 << 20))"))
        big = "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\nopen('big', 'wb').write(bytes(2 << 20))"
        large = ended(client, big)
        assert large.evidence.verdict == "file_size"
        assert "limits.file_size" in str(large)


def test_version_2_is_found_where_it_was_delegated(tmp_path):
    """The files of a hierarchy as a delegated unit has it; the kernel of the test need not have one."""
    unit = tmp_path / "unit"
    (unit / "daemon").mkdir(parents=True)
    for folder, controllers in ((unit, "cpu memory pids"), (unit / "daemon", "")):
        (folder / "cgroup.controllers").write_text(controllers)
        (folder / "cgroup.subtree_control").write_text("memory pids" if folder == unit else "")
    (tmp_path / "self").write_text("0::/unit/daemon\n")
    (tmp_path / "mounts").write_text(f"41 31 0:37 / {tmp_path} rw,relatime shared:5 - cgroup2 cgroup2 rw\n")
    found = cgroup.find(str(tmp_path / "self"), str(tmp_path / "mounts"))
    assert (found.version, found.folders) == (2, (str(unit),))
    (unit / "cgroup.controllers").write_text("cpu")
    with pytest.raises(cgroup.Unavailable, match="memory, pids"):
        cgroup.find(str(tmp_path / "self"), str(tmp_path / "mounts"))
    with pytest.raises(cgroup.Unavailable, match="no cgroup file system"):
        cgroup.find(str(tmp_path / "self"), str(tmp_path / "none"))
