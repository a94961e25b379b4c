"""What a worker finds around itself: seen from inside."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import time

from workerbench import SPAWNING, UNSEALED

from toolsd.core.instructions import StopWorker
from toolsd.launch import Confinement, Limits

MiB = 1024 * 1024


def test_environment_is_built_from_nothing(play, monkeypatch):
    monkeypatch.setenv("DAEMON_SECRET", "canary")

    async def scenario(bench):
        worker = await bench.start(env={"TOKEN": "t", "LANG": "de_DE.UTF-8"}, confinement=UNSEALED)
        env = json.loads(await bench.run(worker, "out = json.dumps(dict(os.environ))"))
        scratch = env["HOME"]
        assert env == {
            "HOME": scratch,
            "TMPDIR": scratch,
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "de_DE.UTF-8",
            "TOKEN": "t",
        }
        seen = await bench.run(worker, "import subprocess; out = subprocess.run(['env'], capture_output=True).stdout")
        assert "canary" not in seen
        assert "TOKEN=t" in seen
        raw = await bench.run(worker, "out = open('/proc/self/environ').read()")
        assert "canary" not in raw
        assert "TOKEN" not in raw  # nor does a sibling find another's secrets where the kernel shows them

    play(scenario)


def test_descriptors_are_the_link_the_recorder_and_output(play):
    async def scenario(bench):
        other = await bench.start()
        worker = await bench.start(confinement=UNSEALED)
        read, write = os.pipe()
        os.set_inheritable(write, True)
        code = "out = json.dumps({fd: os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd')[:-1]})"
        fds = json.loads(await bench.run(worker, code))
        os.close(read)
        os.close(write)
        assert fds["0"] == "/dev/null"
        assert fds["1"] == fds["2"]
        assert fds["1"].startswith("pipe:")
        rest = sorted(target.split(":[")[0] for fd, target in fds.items() if int(fd) > 2)
        assert rest.count("/memfd:toolsd-flight (deleted)") == 2  # a Python mapping holds a copy of its descriptor
        assert rest.count("socket") == 2  # the listener and its one connection
        assert sum(target.endswith("/status") for target in rest) == 1  # its own memory figures
        others = {target for target in rest if not target.endswith("/status")}
        assert others == {"/memfd:toolsd-flight (deleted)", "socket", "anon_inode"}  # libzmq's own, made inside
        del other

    play(scenario)


def test_place_identity_and_limits(play):
    async def scenario(bench):
        limits = Limits(memory=512 * MiB, cpu_time=60, open_files=64, file_size=MiB)
        worker = await bench.start(limits=limits, confinement=UNSEALED)
        pid = await bench.pid(worker)
        code = """
import resource as r
names = 'AS DATA CPU NOFILE FSIZE CORE'.split()
mode = os.stat('.').st_mode
with open('made', 'w'): pass
status = dict(line.split(':', 1) for line in open('/proc/self/status'))
out = json.dumps(dict(
    cwd=os.getcwd(), mode=mode, made=os.stat('made').st_mode, sid=os.getsid(0), pid=os.getpid(), stdin=sys.stdin.read(),
    limits={n: r.getrlimit(getattr(r, 'RLIMIT_' + n)) for n in names}, threads=threading.active_count(),
    nnp=status['NoNewPrivs'].strip(), ppid=os.getppid(), comm=open('/proc/self/comm').read().strip()))
"""
        seen = json.loads(await bench.run(worker, code))
        assert seen["pid"] == seen["sid"] == pid
        assert seen["ppid"] == bench.node._forkserver.pid
        assert stat.S_IMODE(seen["mode"]) == 0o700
        assert stat.S_IMODE(seen["made"]) == 0o600
        assert seen["stdin"] == ""
        assert seen["nnp"] == "1"
        assert seen["comm"] == "toolsd:probe"
        assert seen["threads"] == 1
        assert seen["limits"]["DATA"][0] == 512 * MiB
        assert 512 * MiB < seen["limits"]["AS"][0] < 2048 * MiB
        assert seen["limits"]["CPU"][0] == 60 < seen["limits"]["CPU"][1]
        assert seen["limits"]["NOFILE"] == [64, 64]
        assert seen["limits"]["FSIZE"] == [MiB, MiB]
        assert seen["limits"]["CORE"] == [0, 0]
        big = await bench.run(
            worker, "try: open('big', 'wb').write(bytes(2 << 20))\nexcept OSError as e: out = e.errno"
        )
        assert big == "27"  # EFBIG, an error in the tool, not a death
        code = "fds = []\ntry:\n while True: fds.append(os.dup(0))\nexcept OSError as e: out = e.errno\n"
        assert await bench.run(worker, code + "for fd in fds: os.close(fd)") == "24"
        assert os.path.isdir(seen["cwd"])
        await bench.kill(worker)
        await removed(seen["cwd"])

    play(scenario)


async def removed(path: str) -> None:
    end = time.monotonic() + 10
    while os.path.lexists(path):
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


def test_scratch_goes_whatever_was_done_to_it(play):
    async def scenario(bench):
        worker = await bench.start(confinement=Confinement(file_metadata=True))
        code = """
os.makedirs('a/b/c'); open('a/b/c/f', 'w').close(); os.symlink('/etc', 'a/link')
os.chmod('a/b', 0); os.chmod('a', 0o500); out = os.getcwd()
"""
        scratch = await bench.run(worker, code)
        await bench.kill(worker)
        await removed(scratch)
        assert os.path.isdir("/etc")

    play(scenario)


def test_output_is_never_in_the_way_and_its_tail_is_kept(play):
    async def scenario(bench):
        worker = await bench.start()
        code = """
for _ in range(160):
    sys.stdout.write('o' * 65536); sys.stderr.write('e' * 65536)
os.write(1, b'bytes \\xff\\n'); print('the end')
"""
        assert await bench.run(worker, code) == ""
        other = await bench.start()
        assert await bench.call(other, "echo", "fine") == "fine"
        bench.node.execute(StopWorker(worker, 5.0))
        report = await bench.exit(worker)
        assert report.exit_code == 0
        assert report.stderr_tail.endswith("the end\n")
        assert len(report.stderr_tail) < 20_000
        dropped = int(report.stderr_tail.split()[0].strip("["))
        assert dropped > 19 * MiB

    play(scenario)


def test_output_held_open_by_a_descendant_delays_nothing(play):
    async def scenario(bench):
        worker = await bench.start(**SPAWNING)
        await bench.run(worker, "import subprocess; subprocess.Popen(['sleep', '600'])")
        os.kill(await bench.pid(worker), signal.SIGKILL)
        await bench.exit(worker, 5.0)

    play(scenario)
