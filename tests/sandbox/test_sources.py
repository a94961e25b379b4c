"""Sources in real workers of a real coordinator: what they may not, what they are told, and what ends them."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import toolsd

SOURCE = '''
import ctypes, mmap, os, resource, shutil, signal, socket, sqlite3, subprocess, sys, tempfile, threading, time
import toolsd

source = toolsd.Source("hostile")

@source.tool
def run(code: str) -> str:
    """Run Python."""
    names = globals() | {"out": None}
    exec(code, names)
    return str(names["out"])
'''


@contextlib.contextmanager
def hostile(folder: Path, settings: str = "", **options) -> Iterator[toolsd.Client]:
    (folder / "code").mkdir(exist_ok=True)
    (folder / "code" / "hostile.py").write_text(SOURCE)
    text = f'[source.hostile]\nkind = "python"\npath = "code/hostile.py"\nrestart.max = 100\n{settings}\n'
    (folder / "toolsd.toml").write_text(text)
    with toolsd.local(folder / "toolsd.toml", **options) as client:
        yield client


def told(client: toolsd.Client, code: str) -> str:
    result = client.call("run", {"code": code})
    assert not result.ok
    return result.text


def ended(client: toolsd.Client, code: str) -> toolsd.TurnFailed:
    with pytest.raises(toolsd.TurnFailed) as failed:
        client.run([("run", {"code": code})])
    return failed.value


def test_a_denied_action_says_what_would_allow_it(tmp_path):
    (tmp_path / "secret").write_text("x")
    with hostile(tmp_path) as client:
        assert "permissions.read" in told(client, f"open({str(tmp_path / 'secret')!r})")
        assert 'permissions.network = "none"' in told(client, "socket.socket()")
        assert 'permissions.network = "none"' in told(client, "socket.create_connection(('example.org', 80))")
        assert "limits.processes" in told(client, "subprocess.run(['true'])")
        assert "limits.processes" in told(client, "os.fork()")
        assert "shutil.copyfile" in told(client, "open('a', 'w').close(); shutil.copy('a', 'b')")
        assert "permissions.write" in told(
            client, f"sqlite3.connect({str(tmp_path / 'db')!r}).execute('create table t(x)')"
        )


def test_what_must_work_works(tmp_path):
    with hostile(tmp_path) as client:
        code = """
import asyncio, concurrent.futures, json, zipfile
db = sqlite3.connect('db'); db.execute('pragma journal_mode=wal'); db.execute('create table t(x)'); db.commit()
with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile() as file:
    open(os.path.join(folder, 'a'), 'w').close(); os.replace(os.path.join(folder, 'a'), os.path.join(folder, 'b'))
    shutil.copyfile(os.path.join(folder, 'b'), 'c')
with zipfile.ZipFile('z.zip', 'w') as z: z.writestr('x', 'y')
zipfile.ZipFile('z.zip').extractall('unzipped')
with concurrent.futures.ThreadPoolExecutor(8) as pool: assert sum(pool.map(int, range(100))) == 4950
async def nap():
    await asyncio.gather(*[asyncio.sleep(0.001) for _ in range(10)])
    return await asyncio.to_thread(int, 7)
loop = asyncio.new_event_loop(); out = loop.run_until_complete(nap()); loop.close()
"""
        assert client.call("run", {"code": code}).text == "7"


def test_granted_files_can_be_used_and_others_not(tmp_path):
    for name in ("read", "write", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    with hostile(tmp_path, 'permissions.preset = ["files:ro read", "files:rw write"]') as client:
        assert client.call("run", {"code": f"out = open({str(tmp_path / 'read/file')!r}).read()"}).text == "read"
        told(client, f"open({str(tmp_path / 'read/file')!r}, 'w')")
        told(client, f"open({str(tmp_path / 'other/file')!r})")
        told(client, f"open({str(tmp_path / 'toolsd.toml')!r})")
        made = client.call("run", {"code": f"open({str(tmp_path / 'write/new')!r}, 'w').write('made')"})
        assert made.ok, made.text
    assert (tmp_path / "write" / "new").read_text() == "made"


def test_each_limit_has_its_own_verdict(tmp_path):
    limits = '[source.hostile.limits]\ncpu_time = "1s"\nscratch_size = "8MiB"\nfile_size = "4MiB"\nmemory = "256MiB"\n'
    with hostile(tmp_path, limits) as client:
        spin = ended(client, "while True: pass")
        assert (spin.code, spin.evidence.verdict) == ("worker_crashed", "cpu")
        stubborn = ended(client, "signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass")
        assert stubborn.evidence.verdict == "cpu"
        many = ended(client, "for n in range(9): open(str(n), 'wb').write(bytes(1 << 20))\ntime.sleep(60)")
        assert many.evidence.verdict == "scratch"
        assert "scratch_size" in str(many)
        assert ended(client, "ctypes.string_at(0)").evidence.verdict == "crash"
        foreign = "import ctypes\nctypes.CDLL(None).syscall(0x40000000 | 39)"
        assert ended(client, foreign).evidence.verdict == "forbidden_syscall"
        pid = int(client.call("run", {"code": "out = os.getpid()"}).text)
        kill = f"import os, time; time.sleep(0.3); os.kill({pid}, 9)"
        with subprocess.Popen([sys.executable, "-c", kill]):
            assert ended(client, "time.sleep(60)").evidence.verdict == "killed_externally"
        assert "limits.file_size" in told(client, "open('big', 'wb').write(bytes(5 << 20))")
        for hog in ("bytearray(2 << 30)", "mmap.mmap(-1, 2 << 30)"):
            assert "MemoryError" in told(client, hog) or "OSError" in told(client, hog)
        assert "limits.open_files" in told(client, "held = []\nwhile True: held.append(os.dup(0))")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code of another architecture")
def test_the_32_bit_door_is_shut(tmp_path):
    code = """
area = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
area.write(bytes.fromhex('b814000000cd80c3'))  # mov eax, getpid; int 0x80; ret
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(area)))()
"""
    with hostile(tmp_path) as client:
        assert ended(client, code).evidence.verdict == "forbidden_syscall"


def test_threads_are_bounded(tmp_path):
    code = """
threads = []
try:
    for _ in range(1500):
        thread = threading.Thread(target=time.sleep, args=(0.2,), daemon=True); thread.start(); threads.append(thread)
except RuntimeError:
    out = len(threads)
"""
    with hostile(tmp_path, "limits.threads = 40") as client:
        assert 30 <= int(client.call("run", {"code": code}).text) <= 60


def test_a_fork_bomb_ends_at_its_limit(tmp_path):
    code = """
pids = []
try:
    while True:
        pid = os.fork()
        if pid == 0:
            time.sleep(30); os._exit(0)
        pids.append(pid)
except BlockingIOError:
    out = len(pids)
"""
    with hostile(tmp_path, "limits.processes = 8") as client:
        # An ordinary user's limit starts from the tasks that user had when the worker started; some may have ended.
        assert int(client.call("run", {"code": code}).text) <= (8 if os.geteuid() == 0 else 24)
        assert client.call("run", {"code": "out = 'alive'"}).text == "alive"


def test_nothing_of_the_source_runs_before_the_seal(tmp_path):
    (tmp_path / "code").mkdir()
    mark = f"open({str(tmp_path / 'ran')!r}, 'w').write('x')\n"
    for name in ("sitecustomize.py", "usercustomize.py"):
        (tmp_path / "code" / name).write_text(mark)
    (tmp_path / "code" / "evil.pth").write_text("import os; " + mark)
    env = f'env = {{ PYTHONSTARTUP = "{tmp_path}/code/sitecustomize.py", LD_PRELOAD = "{tmp_path}/code/none.so" }}\n'
    with hostile(tmp_path, env) as client:
        assert client.call("run", {"code": "out = 1"}).text == "1"
    assert not (tmp_path / "ran").exists()


def test_mode_off_needs_two_yeses_and_is_seen_everywhere(tmp_path):
    with pytest.raises(toolsd.ConfigError, match="allow-unsandboxed"), hostile(tmp_path, 'permissions.mode = "off"'):
        pass
    with hostile(tmp_path, 'permissions.mode = "off"', allow_unsandboxed=True) as client:
        assert client.call("run", {"code": "out = socket.socket().family.name"}).text == "AF_INET"
        assert [tool.sandbox for tool in client.tools()] == ["none"]
        assert [source["sandbox"] for source in client.ps()["sources"]] == ["none"]
    with hostile(tmp_path) as client:
        assert [tool.sandbox for tool in client.tools()] == ["kernel"]


BLIND = """
import ctypes, os, struct, sys
from toolsd.sandbox import bpf
from toolsd.sandbox.syscalls import native
arch, name = native(), sys.argv[1]
rules = {number: bpf.Rule(bpf.ALLOW) for number in range(1000)}
rules[arch.numbers[name]] = bpf.Rule(bpf.errno_(38))
program = bpf.assemble(arch.audit, rules, bpf.ALLOW)
libc = ctypes.CDLL(None, use_errno=True)
text = ctypes.create_string_buffer(program.for_pid(0), len(program.code))
class Header(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Header(len(program), ctypes.addressof(text))), 0, 0) == 0
import toolsd
try:
    with toolsd.local(sys.argv[2]) as client:
        print(client.call("run", {"code": "out = 'it ran'"}).text)
        for source in client.ps()["sources"]:
            print(source["failure"])
except toolsd.ToolsdError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("call", "guarantee", "remedy"),
    [("landlock_create_ruleset", "fs", "lsm="), ("seccomp", "kernel-surface", "CONFIG_SECCOMP_FILTER")],
)
def test_without_the_kernels_help_a_source_is_refused(tmp_path, call, guarantee, remedy):
    with hostile(tmp_path):
        pass
    done = subprocess.run(
        [sys.executable, "-c", BLIND, call, str(tmp_path / "toolsd.toml")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "it ran" not in done.stdout
    assert guarantee in done.stdout
    assert "ENOSYS" in done.stdout
    assert remedy in done.stdout


def test_a_named_host_is_reached_through_the_broker(tmp_path):
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    settings = f'permissions.network = {{ connect = ["localhost:{port}"] }}'
    with server, hostile(tmp_path, settings) as client:
        code = f"s = socket.create_connection(('localhost', {port}), 5); s.sendall(b'hello'); s.close(); out = 'sent'"
        result = client.call("run", {"code": code})
        assert result.text == "sent"
        with server.accept()[0] as heard:
            assert heard.recv(5) == b"hello"
        assert "permissions.network" in told(client, f"socket.create_connection(('localhost', {port + 1}), 5)")
        assert "permissions.network" in told(client, "socket.create_connection(('example.org', 80), 5)")


def run_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "toolsd", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_command_line_explains_and_checks(tmp_path):
    with hostile(tmp_path, "limits.open_files = 77"):
        pass
    told = run_cli("sandbox", "explain", "hostile", "--json", "-c", str(tmp_path / "toolsd.toml"))
    assert told.returncode == 0, told.stderr
    policy = {line["what"]: line for line in json.loads(told.stdout)["policy"]}
    assert policy["open files"]["value"] == "77"
    assert policy["network"]["value"] == "none"
    checked = run_cli("sandbox", "check", "--json")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert json.loads(checked.stdout)["ok"]
