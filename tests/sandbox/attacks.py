"""The attacks: what a hostile tool would try, each against a decoy of the test's own.

Runs inside a sealed process, imports nothing that needs a file outside the interpreter. An attack returns quietly when
every attempt was denied and raises `Escaped` when one got through. `run(decoys)` runs all and tells what
happened.
"""

import array
import ctypes
import errno
import fcntl
import json
import mmap
import os
import platform
import resource
import shutil
import signal
import socket
import struct
import threading
import time

DENIED = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EXDEV, errno.EROFS}
X86 = platform.machine() == "x86_64"
# (x86_64, aarch64) numbers of calls Python has no function for.
NR = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438),
    "kcmp": (312, 272), "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "io_uring_setup": (425, 425), "userfaultfd": (323, 282), "bpf": (321, 280), "perf_event_open": (298, 241),
    "fanotify_init": (300, 262), "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "chroot": (161, 51),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "clone": (56, 220), "clone3": (435, 435),
    "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180), "tgkill": (234, 131),
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "memfd_create": (319, 279),
    "execveat": (322, 281), "memfd_secret": (447, 447), "truncate": (76, 45), "fchmodat2": (452, 452),
    "setxattrat": (463, 463), "prlimit64": (302, 261), "inotify_init1": (294, 26), "seccomp": (317, 277),
    "pivot_root": (155, 41), "quotactl": (179, 60), "personality": (135, 92), "finit_module": (313, 273),
    "kexec_load": (246, 104), "process_madvise": (440, 440), "migrate_pages": (256, 238), "setpriority": (141, 140),
    "sched_setscheduler": (144, 119), "vmsplice": (278, 75), "openat2": (437, 437), "mount_setattr": (442, 442),
    "open_tree": (428, 428), "fsopen": (430, 430), "move_mount": (429, 429), "acct": (163, 89),
    "sethostname": (170, 161), "clock_settime": (227, 112), "syslog": (103, 116), "ioprio_set": (251, 30),
    "newest": (9999, 9999), "fchmod": (91, 52), "socket": (41, 198), "sendto": (44, 206), "setrlimit": (160, 164),
}  # fmt: skip
LIBC = ctypes.CDLL(None, use_errno=True)
ATTACKS = {}


class Escaped(Exception):
    pass


def attack(number):
    def register(function):
        ATTACKS[f"{number:02d}_{function.__name__}"] = function
        return function

    return register


def call(name, *arguments):
    ctypes.set_errno(0)
    number = NR[name][0 if X86 else 1]
    converted = [a if isinstance(a, (bytes, ctypes.Array)) else ctypes.c_long(a) for a in arguments]
    answer = LIBC.syscall(ctypes.c_long(number), *converted)
    if answer == -1:
        raise OSError(ctypes.get_errno(), name)
    return answer


def denied(what, function, *arguments, also=()):
    try:
        got = function(*arguments)
    except OSError as error:
        if error.errno in DENIED or error.errno in also:
            return
        raise Escaped(f"{what}: not denied but {errno.errorcode.get(error.errno, error.errno)}") from None
    raise Escaped(f"{what}: got {got!r}"[:200])


def read(path):
    with open(path, "rb") as file:
        return file.read(20)


def write(path):
    with open(path, "wb") as file:
        return file.write(b"x")


@attack(1)
def system_shadow(d):
    denied("shadow", read, "/etc/shadow", also=(errno.ENOENT,))


@attack(2)
def own_secret(d):
    denied("by path", read, d.secret)
    link = os.path.join(d.scratch, "link")
    os.symlink(d.secret, link)
    denied("by symlink", read, link)
    denied("by ..", read, os.path.join(d.scratch, os.path.relpath(d.secret, d.scratch)))
    for door in ("root", "cwd"):
        denied(door, read, f"/proc/{d.sibling}/{door}" + (d.secret if door == "root" else ""), also=(errno.EISDIR,))
        denied(door + " of self", read, f"/proc/self/{door}/" + d.secret, also=(errno.ENOENT, errno.ENOTDIR))
    denied("listing", os.listdir, d.folder)
    os.unlink(link)


@attack(3)
def other_processes_in_proc(d):
    for pid in (d.parent, d.sibling):
        for name in ("environ", "cmdline", "mem", "maps", "stat", "status", "auxv", "stack", "io"):
            denied(f"{name} of {pid}", read, f"/proc/{pid}/{name}", also=(errno.ENOENT,))
        denied(f"fd of {pid}", os.listdir, f"/proc/{pid}/fd", also=(errno.ENOENT,))
    denied("list of processes", os.listdir, "/proc")


@attack(4)
def change_outside(d):
    inside = os.path.join(d.scratch, "mine")
    with open(inside, "w") as file:
        file.write("x")
    new = os.path.join(d.folder, "new")
    denied("create", write, new)
    denied("append", os.open, d.secret, os.O_WRONLY | os.O_APPEND)
    denied("truncate by open", os.open, d.secret, os.O_RDONLY | os.O_TRUNC)
    denied("truncate", os.truncate, d.secret, 0)
    denied("unlink", os.unlink, d.secret)
    denied("rename out", os.rename, inside, new)
    denied("rename in", os.rename, d.secret, os.path.join(d.scratch, "stolen"))
    denied("link in", os.link, d.secret, os.path.join(d.scratch, "linked"))
    denied("link out", os.link, inside, new)
    denied("symlink out", os.symlink, inside, new)
    denied("mkdir", os.mkdir, new)
    denied("rmdir", os.rmdir, d.folder, also=(errno.ENOTEMPTY,))
    denied("mkfifo", os.mkfifo, new)
    denied("mknod", os.mknod, new)
    denied("creat by openat of a directory", os.open, d.folder, os.O_RDONLY | os.O_DIRECTORY)
    denied("tmpfile", os.open, d.folder, os.O_TMPFILE | os.O_RDWR)
    os.unlink(inside)


@attack(4)
def change_what_may_be_read(d):
    denied("write granted-to-read", write, d.readable)
    denied("truncate by a read-only open", os.open, d.readable, os.O_RDONLY | os.O_TRUNC)
    denied("truncate by path", os.truncate, d.readable, 0)
    if read(d.readable) != b"readable":
        raise Escaped("a file granted for reading was not readable, or changed")


@attack(5)
def metadata(d):
    for path in (d.secret, d.readable, d.folder):
        denied("chmod", os.chmod, path, 0o777)
        denied("chown", os.chown, path, os.getuid(), os.getgid())
        denied("lchown", os.lchown, path, os.getuid(), os.getgid())
        denied("utime", os.utime, path, (1, 1))
        denied("setxattr", os.setxattr, path, "user.decoy", b"x")
        denied("removexattr", os.removexattr, path, "user.decoy")
        denied("fchmodat2", call, "fchmodat2", -100, path.encode(), 0o777, 0)
        denied("setxattrat", call, "setxattrat", -100, path.encode(), 0, b"user.x", 0, 0)
    descriptor = os.open(d.readable, os.O_RDONLY)
    try:
        denied("fchmod", os.fchmod, descriptor, 0o777)
        denied("fchown", os.fchown, descriptor, os.getuid(), os.getgid())
        denied("futimens", os.utime, descriptor, (1, 1))
        denied("fsetxattr", os.setxattr, descriptor, "user.decoy", b"x")
        flags = array.array("l", [0x40])
        denied("FS_IOC_SETFLAGS", fcntl.ioctl, descriptor, 0x40086602, flags)
    finally:
        os.close(descriptor)


@attack(6)
def shared_places(d):
    for folder in (d.shared, "/tmp", "/var/tmp", "/dev/shm"):
        denied(folder, write, os.path.join(folder, "toolsd-attack"), also=(errno.ENOENT,))
    denied("shmget", call, "shmget", 0, 4096, 0o1600)
    denied("semget", call, "semget", 0, 1, 0o1600)
    denied("msgget", call, "msgget", 0, 0o1600)
    denied("mq_open", call, "mq_open", b"toolsd-attack", os.O_CREAT | os.O_RDWR, 0o600, 0)


def connect(family, kind, protocol, address):
    with socket.socket(family, kind, protocol) as out:
        out.settimeout(2)
        out.connect(address)


@attack(7)
def tcp(d):
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        denied("connect", connect, family, socket.SOCK_STREAM, 0, (host, d.tcp))
        denied("mptcp", connect, family, socket.SOCK_STREAM, 262, (host, d.tcp))
        denied("sctp", connect, family, socket.SOCK_STREAM, 132, (host, d.tcp))
        denied("socket with high bits", call, "socket", (1 << 32) | family, socket.SOCK_STREAM, 0)

    def fast_open():
        with socket.socket() as out:
            return out.sendto(b"x", 0x20000000, ("127.0.0.1", d.tcp))

    def listen():
        with socket.socket() as server:
            server.listen()
            return server.getsockname()

    denied("fast open", fast_open)
    denied("listen without bind", listen)


@attack(8)
def udp_and_names(d):
    def send():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            return out.sendto(b"x", ("127.0.0.1", d.udp))

    denied("udp", send)
    try:
        socket.getaddrinfo("example.com", 80)
    except OSError:
        return
    raise Escaped("a name was resolved")


@attack(9)
def strange_families(d):
    for name, family, kind in (
        ("netlink", 16, socket.SOCK_RAW),
        ("packet", 17, socket.SOCK_RAW),
        ("vsock", 40, socket.SOCK_STREAM),
        ("alg", 38, socket.SOCK_SEQPACKET),
        ("raw", socket.AF_INET, socket.SOCK_RAW),
        ("bluetooth", 31, socket.SOCK_RAW),
        ("xdp", 44, socket.SOCK_RAW),
    ):
        denied(name, socket.socket, family, kind)


@attack(10)
def unix_sockets_by_path(d):
    denied("stream", connect, socket.AF_UNIX, socket.SOCK_STREAM, 0, d.unix_stream)
    denied("datagram", connect, socket.AF_UNIX, socket.SOCK_DGRAM, 0, d.unix_datagram)


@attack(11)
def datagram_pairs(d):
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK):
        denied(f"socketpair {kind}", socket.socketpair, socket.AF_UNIX, kind)
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        a, b = socket.socketpair(socket.AF_UNIX, kind)
        with a, b:
            refused = (errno.EISCONN, errno.EINVAL, errno.EPROTOTYPE, errno.EOPNOTSUPP, errno.ENOTCONN, errno.EPIPE)
            for path in (d.unix_datagram, d.unix_stream):
                denied("sendto", a.sendto, b"x", path, also=refused)
                addressed(a, b, path, refused)
                denied("connect", a.connect, path, also=refused)
                denied("bind", a.bind, os.path.join(d.scratch, "sock"), also=refused)
            b.close()
            for path in (d.unix_datagram, d.unix_stream):
                denied("connect after hang-up", a.connect, path, also=refused)


def addressed(sender, peer, path, refused):
    """SEQPACKET ignores the address of a message (af_unix.c): then it must have gone to the peer."""
    try:
        sender.sendmsg([b"x"], [], 0, path)
    except OSError as error:
        if error.errno not in refused and error.errno not in DENIED:
            raise Escaped(f"sendmsg: {error}") from None
    else:
        if peer.recv(1, socket.MSG_DONTWAIT) != b"x":
            raise Escaped("sendmsg went elsewhere")


@attack(12)
def abstract_socket(d):
    denied("abstract", connect, socket.AF_UNIX, socket.SOCK_STREAM, 0, "\0" + d.abstract)


@attack(13)
def signals(d):
    information = ctypes.create_string_buffer(struct.pack("=iii", signal.SIGUSR1, 0, -1), 128)
    for pid in (d.parent, d.sibling):
        denied("kill", os.kill, pid, signal.SIGUSR1)
        denied("tgkill", call, "tgkill", pid, pid, signal.SIGUSR1)
        denied("tkill", call, "tkill", pid, signal.SIGUSR1)
        denied("sigqueue", call, "rt_sigqueueinfo", pid, signal.SIGUSR1, information)
        denied("tgsigqueue", call, "rt_tgsigqueueinfo", pid, pid, signal.SIGUSR1, information)
        descriptor = os.pidfd_open(pid)
        denied("pidfd", signal.pidfd_send_signal, descriptor, signal.SIGUSR1)
        os.close(descriptor)
        a, b = socket.socketpair()
        with a, b:
            denied("F_SETOWN", fcntl.fcntl, a, fcntl.F_SETOWN, pid)
            denied("F_SETOWN_EX", fcntl.fcntl, a, 15, struct.pack("=ii", 1, pid))
            denied("FIOSETOWN", fcntl.ioctl, a, 0x8901, struct.pack("=i", pid))
            denied("F_SETSIG", fcntl.fcntl, a, 10, signal.SIGUSR1)
        denied("setpriority", os.setpriority, os.PRIO_PROCESS, pid, 19)
        denied("scheduler", call, "sched_setscheduler", pid, 5, ctypes.create_string_buffer(8))
        denied("affinity", os.sched_setaffinity, pid, {0})
        denied("ioprio", call, "ioprio_set", 1, pid, 0)
    denied("own group", os.kill, 0, signal.SIGUSR1)
    denied("everybody", os.kill, -1, signal.SIGUSR1)


@attack(14)
def other_memory(d):
    vector = ctypes.create_string_buffer(struct.pack("=QQ", 0, 0), 16)
    for pid in (d.parent, d.sibling):
        denied("attach", call, "ptrace", 16, pid, 0, 0)
        denied("seize", call, "ptrace", 0x4206, pid, 0, 0)
        denied("readv", call, "process_vm_readv", pid, vector, 1, vector, 1, 0)
        denied("writev", call, "process_vm_writev", pid, vector, 1, vector, 1, 0)
        denied("kcmp", call, "kcmp", os.getpid(), pid, 0, 0, 0)
        denied("migrate", call, "migrate_pages", pid, 1, vector, vector)
        descriptor = os.pidfd_open(pid)
        denied("getfd", call, "pidfd_getfd", descriptor, 0, 0)
        denied("madvise", call, "process_madvise", descriptor, vector, 1, 4, 0)
        os.close(descriptor)
    denied("traceme", call, "ptrace", 0, 0, 0, 0)


@attack(15)
def keys(d):
    denied("keyctl", call, "keyctl", 0, -3, 0)
    denied("add_key", call, "add_key", b"user", b"toolsd", b"x", 1, -3)
    denied("request_key", call, "request_key", b"user", b"toolsd", 0, -3)


@attack(16)
def kernel_interfaces(d):
    blank = ctypes.create_string_buffer(256)
    denied("io_uring", call, "io_uring_setup", 1, blank)
    denied("userfaultfd", call, "userfaultfd", 1)
    denied("bpf", call, "bpf", 0, blank, 48)
    denied("perf", call, "perf_event_open", blank, 0, -1, -1, 0)
    denied("fanotify", call, "fanotify_init", 0, 0)
    denied("inotify", call, "inotify_init1", 0)
    denied("personality", call, "personality", 0x0040000)
    denied("quotactl", call, "quotactl", 0x800001, 0, 0, 0)
    denied("module", call, "finit_module", 0, b"", 0)
    denied("kexec", call, "kexec_load", 0, 0, 0, 0)
    denied("acct", call, "acct", 0)
    denied("hostname", call, "sethostname", b"x", 1)
    denied("clock", call, "clock_settime", 0, blank)
    denied("kernel log", call, "syslog", 3, blank, 10)
    denied("vmsplice", call, "vmsplice", 0, blank, 1, 0)
    denied("newer than the table", call, "newest")
    denied("own filter", call, "seccomp", 1, 0, blank)


@attack(17)
def namespaces_and_mounts(d):
    for flag in (0x10000000, 0x00020000, 0x40000000, 0x20000000, 0x08000000, 0x04000000, 0x02000000):
        denied("unshare", call, "unshare", flag)
        denied("clone", call, "clone", flag | signal.SIGCHLD, 0, 0, 0, 0)
        denied("clone as a thread", call, "clone", flag | 0x10000 | 0x800 | 0x100, 0, 0, 0, 0)
    arguments = ctypes.create_string_buffer(struct.pack("=11Q", 0x10000000, *([0] * 10)), 88)
    denied("clone3", call, "clone3", arguments, 88)
    denied("setns", call, "setns", 0, 0)
    denied("mount", call, "mount", b"none", d.scratch.encode(), b"tmpfs", 0, 0)
    denied("chroot", os.chroot, d.scratch)
    denied("pivot_root", call, "pivot_root", d.scratch.encode(), d.scratch.encode())
    denied("fsopen", call, "fsopen", b"tmpfs", 0)
    denied("open_tree", call, "open_tree", -100, b"/", 1)
    denied("move_mount", call, "move_mount", -1, b"", -100, b"/", 4)
    handle = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0), 136)
    denied("name_to_handle", call, "name_to_handle_at", -100, d.secret.encode(), handle, handle, 0)
    denied("open_by_handle", call, "open_by_handle_at", -100, handle, os.O_RDONLY)


@attack(19)
def terminal_commands(d):
    for command in (0x5412, 0x541C):
        for high in (0, 1 << 32, 0xFFFFFFFF << 32):
            ctypes.set_errno(0)
            answer = LIBC.syscall(ctypes.c_long(16 if X86 else 29), 0, ctypes.c_ulong(high | command), b"x")
            if answer != -1 or ctypes.get_errno() != errno.EPERM:
                raise Escaped(f"ioctl {command:#x}: {answer} {ctypes.get_errno()}")


@attack(20)
def inherited_descriptors(d):
    for descriptor in range(3, 4096):
        if descriptor in d.granted_descriptors:
            continue
        try:
            os.fstat(descriptor)
        except OSError:
            continue
        raise Escaped(f"descriptor {descriptor} is open")


@attack(21)
def environment(d):
    for name, value in os.environ.items():
        if d.canary in value or d.canary in name:
            raise Escaped(f"{name} of the daemon is in the environment")


@attack(22)
def privileges(d):
    if LIBC.prctl(39, 0, 0, 0, 0) != 1:
        raise Escaped("NO_NEW_PRIVS is not set")
    header = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0), 8)
    data = ctypes.create_string_buffer(24)
    LIBC.capget(header, data)
    effective, permitted = struct.unpack("=6I", data.raw)[:2]
    if (effective | permitted) & ~(1 << 2):
        raise Escaped(f"capabilities {permitted:#x}")
    if os.getuid() == 0 or os.getgid() == 0 or 0 in os.getgroups():
        raise Escaped("still root")
    for program in ("/bin/su", "/usr/bin/passwd"):
        if not d.launched:
            denied("exec", os.execv, program, [program], also=(errno.ENOENT,))
    denied("setuid", os.setuid, 0)
    denied("setresuid", os.setresuid, 0, 0, 0)
    denied("setgroups", os.setgroups, [0])


@attack(23)
def spawning(d):
    for name, function in (("fork", os.fork), ("posix_spawn", lambda: os.posix_spawn("/bin/true", ["true"], {}))):
        denied(name, function)
    denied("clone", call, "clone", signal.SIGCHLD, 0, 0, 0, 0)
    denied("vfork-like clone", call, "clone", 0x4000 | 0x100 | signal.SIGCHLD, 0, 0, 0, 0)
    denied("clone3", call, "clone3", ctypes.create_string_buffer(88), 88)


@attack(33)
def raising_limits(d):
    low, high = resource.getrlimit(resource.RLIMIT_NOFILE)
    values = ctypes.create_string_buffer(struct.pack("=QQ", low, high), 16)
    denied("setrlimit", call, "setrlimit", resource.RLIMIT_NOFILE, values)
    for pid in (0, os.getpid(), d.sibling, d.parent):
        denied("prlimit", call, "prlimit64", pid, resource.RLIMIT_NOFILE, values, 0)


@attack(41)
def symlink_race(d):
    """A path that is a granted file now and the secret in the next moment: what counts is what was opened."""
    path, good = os.path.join(d.scratch, "race"), os.path.join(d.scratch, "good")
    with open(good, "wb") as file:
        file.write(b"good")
    stop = threading.Event()

    def swap():
        turn = 0
        while not stop.is_set():
            turn += 1
            fresh = f"{path}.{turn % 2}"
            os.symlink(d.secret if turn % 2 else good, fresh)
            os.replace(fresh, path)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(500):
            try:
                got = read(path)
            except OSError:
                continue
            if got != b"good":
                raise Escaped(f"read {got!r}")
    finally:
        stop.set()
        swapper.join()


@attack(42)
def own_proc_doors(d):
    for door in ("/proc/self/mem", "/proc/self/root" + d.secret, "/proc/thread-self/root" + d.secret, "/proc/1/environ",
                 f"/proc/self/task/{d.parent}/environ", "/proc/sys/kernel/core_pattern", "/proc/kcore"):  # fmt: skip
        denied(door, read, door, also=(errno.ENOENT,))
    denied("core pattern", write, "/proc/sys/kernel/core_pattern", also=(errno.ENOENT,))
    denied("oom", write, "/proc/self/oom_score_adj", also=(errno.ENOENT,))


@attack(43)
def inherited_working_directory(d):
    os.chdir(d.folder)  # Landlock does not stop chdir; what counts is that nothing opens from there
    try:
        denied("relative read", read, os.path.basename(d.secret))
        denied("relative write", write, "new")
        denied("listing", os.listdir, ".")
        descriptor = os.open(".", os.O_PATH)
        denied("through O_PATH", lambda: os.open(os.path.basename(d.secret), os.O_RDONLY, dir_fd=descriptor))
        denied("reopen", lambda: os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY), also=(errno.ENOENT,))
        os.close(descriptor)
    finally:
        os.chdir(d.scratch)


@attack(44)
def memory_files(d):
    denied("memfd", call, "memfd_create", b"x", 0)
    denied("memfd_secret", call, "memfd_secret", 0)
    program = os.path.join(d.scratch, "program")
    shutil.copyfile(d.program, program)
    descriptor = os.open(program, os.O_RDONLY)
    empty = (ctypes.c_char_p * 1)(None)
    denied("execveat", call, "execveat", descriptor, b"", empty, empty, 0x1000)
    denied("exec from scratch", os.execv, program, [program])
    os.close(descriptor)
    os.unlink(program)


@attack(45)
def parent_death_signal(d):
    if LIBC.prctl(1, 0, 0, 0, 0) != -1:
        raise Escaped("the parent-death signal was taken off")


@attack(46)
def watching_folders(d):
    denied("inotify", call, "inotify_init1", 0)
    denied("dnotify", fcntl.fcntl, os.open(d.scratch, os.O_RDONLY), 1026, 1)


@attack(47)
def devices(d):
    for path in ("/dev/mem", "/dev/kmsg", "/dev/tty", "/dev/ptmx", "/dev/fuse", "/dev/kvm", "/dev/vda", "/dev/net/tun"):
        denied(path, os.open, path, os.O_RDWR, also=(errno.ENOENT,))


@attack(48)
def filled_pipes_and_queued_signals(d):
    """Exhaustion inside the own process ends in an error, not in a hang or in somebody else's trouble."""
    pipes = []
    try:
        for _ in range(64):
            reading, writing = os.pipe2(os.O_NONBLOCK)
            pipes += [reading, writing]
            try:
                fcntl.fcntl(writing, 1031, 1 << 20)
                while os.write(writing, bytes(65536)):
                    pass
            except OSError:
                continue
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
    finally:
        for descriptor in pipes:
            os.close(descriptor)
    information = ctypes.create_string_buffer(struct.pack("=iii", signal.SIGRTMIN, 0, -1), 128)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
    try:
        for _ in range(100_000):
            call("rt_sigqueueinfo", os.getpid(), signal.SIGRTMIN, information)
    except OSError as error:
        if error.errno != errno.EAGAIN:
            raise
    while signal.sigtimedwait({signal.SIGRTMIN}, 0):
        pass


@attack(49)
def extended_attributes_are_hidden(d):
    for path in (d.secret, d.readable):
        denied("getxattr", os.getxattr, path, "user.decoy", also=(errno.EOPNOTSUPP,))
        denied("listxattr", os.listxattr, path, also=(errno.EOPNOTSUPP,))


@attack(50)
def clocks_still_tell_time(d):
    """Not an attack: calls the vDSO answers must go on working."""
    if not (time.time() > 1e9 and time.monotonic() > 0 and os.getrandom(8)):
        raise Escaped("clocks or randomness do not work")
    area = mmap.mmap(-1, 4096)
    area[:1] = b"x"
    area.close()


class Decoys:
    def __init__(self, **fields):
        self.__dict__.update(fields)


# Attacks that get through when nothing is confined, without harm to the machine: the test of the tests.
CONTROLS = (
    "02_own_secret",
    "03_other_processes_in_proc",
    "05_metadata",
    "06_shared_places",
    "07_tcp",
    "08_udp_and_names",
    "10_unix_sockets_by_path",
    "11_datagram_pairs",
    "12_abstract_socket",
    "20_inherited_descriptors",
    "21_environment",
    "33_raising_limits",
    "44_memory_files",
    "46_watching_folders",
)


def run_one(name, decoys):
    """None when the attack was held, else what got through."""
    try:
        ATTACKS[name](decoys)
    except Exception as error:  # noqa: BLE001  # it is the report
        return f"{type(error).__name__}: {error}"
    return None


def run(decoys):
    """Every attack's outcome."""
    return {name: run_one(name, decoys) for name in ATTACKS}


def main(report, decoys):
    """Entry of an exec'd process: the outcomes go to the descriptor `report`."""
    os.write(int(report), json.dumps(run(Decoys(**json.loads(decoys)))).encode())
