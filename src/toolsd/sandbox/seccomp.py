"""What a confined worker may ask of the kernel: the rule table, and how it is installed.

Owns which system calls are allowed, denied or checked. `bpf` makes a program of it, `seal` decides when it is applied.

Landlock bounds which files can be opened. This filter closes what Landlock does not see on the kernels people have:
sockets, signals, file metadata, other processes, and the parts of the kernel a tool never needs.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable
from functools import cache
from typing import Literal

import msgspec

from toolsd.launcher import LINK
from toolsd.sandbox import bpf
from toolsd.sandbox.bpf import ALLOW, NOTIFY, SELF_PID, Check, Clause, Rule, errno_
from toolsd.sandbox.kernel import KernelRefusal, syscall
from toolsd.sandbox.syscalls import ARCHITECTURES, Architecture

Network = Literal["none", "brokered", "allow"]

_EPERM, _EACCES, _ENOSYS = errno_(errno.EPERM), errno_(errno.EACCES), errno_(errno.ENOSYS)

# Denied with EPERM, by the reason.
_OTHER_PROCESSES = """ptrace process_vm_readv process_vm_writev pidfd_getfd pidfd_send_signal kcmp process_madvise
    process_mrelease tkill move_pages migrate_pages ioprio_set sched_setparam sched_setattr"""
_METADATA = """chmod fchmod fchmodat chown fchown lchown fchownat utime utimes futimesat utimensat
    setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr"""
_METADATA_READ = "getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr"
_KERNEL = """add_key request_key keyctl bpf perf_event_open fanotify_init fanotify_mark
    inotify_init inotify_init1 inotify_add_watch inotify_rm_watch lookup_dcookie
    mount umount2 pivot_root move_mount fsopen fsconfig fsmount fspick open_tree mount_setattr swapon swapoff
    unshare setns chroot reboot sethostname setdomainname init_module finit_module delete_module create_module
    query_module get_kernel_syms kexec_load kexec_file_load quotactl quotactl_fd acct settimeofday clock_settime
    adjtimex clock_adjtime syslog nfsservctl vhangup iopl ioperm modify_ldt uselib _sysctl ustat sysfs personality
    shmget shmat shmctl shmdt semget semop semctl semtimedop msgget msgsnd msgrcv msgctl
    mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr
    name_to_handle_at open_by_handle_at seccomp setrlimit execveat vmsplice mknod mknodat capset
    getpmsg putpmsg afs_syscall tuxcall security vserver epoll_ctl_old epoll_wait_old"""
# Denied as if the kernel had none of them, so that libraries take their portable way.
_ABSENT = """clone3 io_uring_setup io_uring_enter io_uring_register io_setup io_submit io_cancel io_destroy io_getevents
    io_pgetevents userfaultfd memfd_create memfd_secret set_mempolicy_home_node"""
_SOCKETS = "socket connect bind listen"

# Terminal and file queries a tool may make; every other ioctl is refused (TIOCSTI, TIOCLINUX, FS_IOC_SETFLAGS, …).
_IOCTLS = (0x5401, 0x540F, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x40049409, 0x4020940D)
_F_SETOWN, _F_SETSIG, _F_SETOWN_EX, _F_NOTIFY = 8, 10, 15, 1026
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP = 1, 22
_CLONE_THREAD, _CLONE_PARENT = 0x00010000, 0x00008000
_CLONE_NEW = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_STREAM, _DGRAM, _SEQPACKET, _TYPE = 1, 2, 5, 0xF
_MSG_FASTOPEN = 0x20000000
_TCP_OPTIONS = (1, 2, 3, 4, 5, 6, 12, 18)


class Profile(msgspec.Struct, frozen=True):
    """What the filter depends on. `landlock_abi` is the ABI in force: an older one leaves more for the filter to close.

    `exec_allowed`: the worker may replace itself (a launcher must, a source with one process must not).
    """

    landlock_abi: int
    processes: int = 1
    network: Network = "none"
    file_metadata: bool = False
    exec_allowed: bool = False


@cache
def program(profile: Profile, architecture: str) -> bpf.Program:
    """The program for `profile`; the same for each worker but for its pid, so it is assembled once."""
    arch = ARCHITECTURES[architecture]
    return bpf.assemble(arch.audit, _numbered(arch, rules(profile)), _ENOSYS)


def install(program: bpf.Program, arch: Architecture, *, listen: bool = False) -> int | None:
    """Put this thread under the program, for good. With `listen`, returns the descriptor that answers NOTIFY.

    Needs NO_NEW_PRIVS (seccomp(2)).

    Raises:
        KernelRefusal: the kernel does not take it.
    """
    code = program.for_pid(os.getpid())
    text = ctypes.create_string_buffer(code, len(code))
    header = _Program(len(program), ctypes.addressof(text))
    answer = syscall(arch, "seccomp", 1, 8 if listen else 0, ctypes.addressof(header))
    return answer if listen else None


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def probe(arch: Architecture) -> str | None:
    """None when this kernel filters system calls for us, else its answer (by system call, not by files)."""
    for action in (bpf.KILL, errno_(0), NOTIFY):
        value = ctypes.c_uint32(action)
        try:
            syscall(arch, "seccomp", 2, 0, ctypes.addressof(value))
        except KernelRefusal as refusal:
            return str(refusal)
    return None


def rules(profile: Profile) -> dict[str, Rule]:
    """The rule of every call that is not simply allowed. Pure."""
    table: dict[str, Rule] = {}
    _fill(table, _EPERM, _OTHER_PROCESSES, _KERNEL)
    _fill(table, _ENOSYS, _ABSENT)
    if not profile.file_metadata:
        _fill(table, _EPERM, _METADATA)
        _fill(table, errno_(errno.EOPNOTSUPP), _METADATA_READ)
    table["prlimit64"] = Rule(_EPERM, (Clause(bpf.null(2), ALLOW),))
    table["ioctl"] = Rule(_EPERM, tuple(Clause((Check(1, command),), ALLOW) for command in _IOCTLS))
    table["fcntl"] = _except(1, (_F_SETOWN, _F_SETOWN_EX, _F_SETSIG, _F_NOTIFY))
    table["prctl"] = _except(0, (_PR_SET_PDEATHSIG, _PR_SET_SECCOMP))
    table["setpriority"] = Rule(_EPERM, (Clause((Check(0, 0), Check(1, 0)), ALLOW),))
    table["sched_setaffinity"] = Rule(_EPERM, (Clause((Check(0, 0),), ALLOW),))
    # libzmq asks for the ordinary policy for its threads, whose ids the filter cannot know; no other policy is let by.
    table["sched_setscheduler"] = Rule(_EPERM, (Clause((Check(1, 0),), ALLOW),))
    table.update(_process_rules(profile))
    table.update(_network_rules(profile.network))
    if profile.exec_allowed:  # libraries call listen on what listens already: the call is left out and succeeds
        table["listen"] = Rule(_EACCES, (Clause((Check(0, LINK),), errno_(0)),))
    if profile.landlock_abi < 3:  # such a kernel does not know the right to truncate
        table["truncate"] = Rule(_EPERM)
        table["open"] = _read_only_truncation(1)
        table["openat"] = _read_only_truncation(2)
        table["openat2"] = Rule(_ENOSYS)
    return table


def _process_rules(profile: Profile) -> dict[str, Rule]:
    table: dict[str, Rule] = {}
    namespaces = Clause((Check(0, 0, _CLONE_NEW, kind="any"),), _EPERM)
    thread = Clause((Check(0, 0, _CLONE_THREAD, kind="any"),), ALLOW)
    if profile.processes == 1:
        own = (Clause((Check(0, SELF_PID),), ALLOW),)
        for name in ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
            table[name] = Rule(_EPERM, own)
        _fill(table, _EPERM, "fork vfork")
        table["clone"] = Rule(_EPERM, (namespaces, thread))
    else:  # which pids are its own the filter cannot know: Landlock's signal scope bounds them (tier checks that)
        siblings = Clause((Check(0, 0, _CLONE_PARENT, kind="any"),), _EPERM)
        table["clone"] = Rule(ALLOW, (namespaces, thread, siblings))
    if not (profile.exec_allowed or profile.processes > 1):
        table["execve"] = Rule(_EPERM)
    return table


def _network_rules(network: Network) -> dict[str, Rule]:
    table: dict[str, Rule] = {}
    pair = tuple(Clause((Check(0, _AF_UNIX), Check(1, kind, _TYPE)), ALLOW) for kind in (_STREAM, _SEQPACKET))
    table["socketpair"] = Rule(_EACCES, pair)
    _fill(table, _EACCES, _SOCKETS)
    if network == "none":
        table["sendto"] = Rule(_EACCES, (Clause(bpf.null(4), ALLOW),))
        return table
    stream = [
        Clause((Check(0, family), Check(1, _STREAM, _TYPE), Check(2, protocol)), ALLOW)
        for family in (_AF_INET, _AF_INET6)
        for protocol in (0, 6)
    ]
    if network == "allow":
        datagram = [
            Clause((Check(0, family), Check(1, _DGRAM, _TYPE), Check(2, protocol)), ALLOW)
            for family in (_AF_INET, _AF_INET6)
            for protocol in (0, 17)
        ]
        table["socket"] = Rule(_EACCES, (*stream, *datagram))
        table["connect"] = Rule(ALLOW)
    else:
        table["socket"] = Rule(_EACCES, tuple(stream))
        table["connect"] = Rule(NOTIFY)
        table["sendto"] = Rule(_EACCES, (Clause((Check(3, 0, _MSG_FASTOPEN, kind="any"),), _EACCES), *_no_address(4)))
        for name, flags in (("sendmsg", 2), ("sendmmsg", 3)):
            table[name] = Rule(ALLOW, (Clause((Check(flags, 0, _MSG_FASTOPEN, kind="any"),), _EACCES),))
    # TCP_FASTOPEN_CONNECT would connect without connect(2); TCP_ULP and others are kernel surface a tool does not need.
    options = tuple(Clause((Check(1, 6), Check(2, option)), ALLOW) for option in _TCP_OPTIONS)
    table["setsockopt"] = Rule(ALLOW, (*options, Clause((Check(1, 6),), _EACCES)))
    return table


def _no_address(argument: int) -> tuple[Clause, ...]:
    return (Clause(bpf.null(argument), ALLOW),)


def _except(argument: int, values: Iterable[int]) -> Rule:
    return Rule(ALLOW, tuple(Clause((Check(argument, value),), _EPERM) for value in values))


def _read_only_truncation(flags: int) -> Rule:
    return Rule(ALLOW, (Clause((Check(flags, os.O_RDONLY | os.O_TRUNC, os.O_ACCMODE | os.O_TRUNC),), _EPERM),))


def _fill(table: dict[str, Rule], answer: int, *names: str) -> None:
    for name in " ".join(names).split():
        table[name] = Rule(answer)


def _numbered(arch: Architecture, table: dict[str, Rule]) -> dict[int, Rule]:
    """Every call of the architecture with its rule. Names it does not have are no mistake: tables differ."""
    return {number: table.get(name, Rule(ALLOW)) for name, number in arch.numbers.items()}
