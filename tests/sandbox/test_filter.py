"""The filter as a value: what it answers for each call, run in a small interpreter of classic BPF, on both tables."""

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolsd.sandbox import bpf, landlock, seccomp
from toolsd.sandbox.bpf import ALLOW, KILL, NOTIFY, Check, Clause, Rule, errno_
from toolsd.sandbox.seccomp import Profile
from toolsd.sandbox.syscalls import ARCHITECTURES

EPERM, EACCES, ENOSYS = errno_(errno.EPERM), errno_(errno.EACCES), errno_(errno.ENOSYS)
NAMES = list(ARCHITECTURES)


def answer(code, audit, number, arguments=()):
    data = struct.pack("=IIQ6Q", number, audit, 0, *[a & (2**64 - 1) for a in [*arguments, *[0] * 6][:6]])
    at = accumulator = 0
    while True:
        op, true, false, constant = struct.unpack_from("=HBBI", code, at * 8)
        at += 1
        match op:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, constant)
            case 0x54:
                accumulator &= constant
            case 0x05:
                at += constant
            case 0x15:
                at += true if accumulator == constant else false
            case 0x35:
                at += true if accumulator >= constant else false
            case 0x45:
                at += true if accumulator & constant else false
            case 0x06:
                return constant
            case _:
                raise AssertionError(f"no such instruction {op:#x}")


class Filter:
    def __init__(self, name, pid=4242, **profile):
        self.arch = ARCHITECTURES[name]
        self.code = seccomp.program(Profile(**{"landlock_abi": 7} | profile), name).for_pid(pid)

    def __call__(self, call, *arguments):
        number = call if isinstance(call, int) else self.arch.numbers[call]
        return answer(self.code, self.arch.audit, number, arguments)


@pytest.mark.parametrize("name", NAMES)
def test_foreign_entries_are_killed_and_new_calls_do_not_exist(name):
    ask = Filter(name)
    for audit in (0x40000003, 0x40000028, 0):
        assert answer(ask.code, audit, 1) == KILL
    assert ask(0x40000000 | 39) == KILL
    assert ask(0xFFFFFFFF) == KILL
    assert ask(max(ask.arch.numbers.values()) + 1) == ENOSYS
    assert ask(460) == ENOSYS


@pytest.mark.parametrize("name", NAMES)
def test_sockets_by_network(name):
    tcp, udp, unix = (2, 1, 0), (2, 2, 0), (1, 1, 0)
    none, brokered, allow = (Filter(name, network=n) for n in ("none", "brokered", "allow"))
    assert [none("socket", *s) for s in (tcp, udp, unix)] == [EACCES] * 3
    assert [brokered("socket", *s) for s in (tcp, udp, unix, (2, 1, 262))] == [ALLOW, EACCES, EACCES, EACCES]
    assert [allow("socket", *s) for s in (tcp, udp, unix, (16, 3, 0))] == [ALLOW, ALLOW, EACCES, EACCES]
    assert [f("connect") for f in (none, brokered, allow)] == [EACCES, NOTIFY, ALLOW]
    assert brokered("sendto", 3, 0, 0, 0x20000000) == EACCES
    assert brokered("sendmsg", 3, 0, 0x20000000) == EACCES
    assert brokered("setsockopt", 3, 6, 30) == EACCES
    assert none("sendto", 3, 0, 1, 0, 0x7F0000000000, 110) == EACCES
    assert none("sendto", 3, 0, 1, 0, 0, 0) == ALLOW
    for f in (none, brokered, allow):
        assert f("socketpair", 1, 1 | 0x80000, 0) == ALLOW
        assert f("socketpair", 1, 2, 0) == EACCES
        assert f("bind") == f("listen") == EACCES


@pytest.mark.parametrize("name", NAMES)
def test_processes_and_signals(name):
    one, many = Filter(name), Filter(name, processes=4)
    thread, fork, parent = 0x3D0F00, 17, 0x8000 | 17
    assert [one("clone", f) for f in (thread, fork, parent)] == [ALLOW, EPERM, EPERM]
    assert [many("clone", f) for f in (thread, fork, parent)] == [ALLOW, ALLOW, EPERM]
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert one("clone", thread | flag) == many("clone", fork | flag) == EPERM
    assert one("clone3") == many("clone3") == ENOSYS
    assert one("kill", 4242, 9) == one("tgkill", 4242, 1, 9) == ALLOW
    assert one("kill", 1, 9) == one("kill", -1, 9) == one("kill", 0, 9) == EPERM
    assert many("kill", 1, 9) == ALLOW  # bounded by Landlock's scope
    assert (one("execve"), many("execve"), Filter(name, exec_allowed=True)("execve")) == (EPERM, ALLOW, ALLOW)


@pytest.mark.parametrize("name", NAMES)
def test_old_landlock_leaves_truncation_to_the_filter(name):
    old, new = Filter(name, landlock_abi=2), Filter(name, landlock_abi=3)
    assert old("truncate") == EPERM
    assert new("truncate") == ALLOW
    assert old("openat", 0, 0, 0o1000) == EPERM
    assert old("openat", 0, 0, 0o1001) == ALLOW  # writing needs the right to write
    assert new("openat", 0, 0, 0o1000) == ALLOW
    assert old("openat2") == ENOSYS


@pytest.mark.parametrize("name", NAMES)
def test_metadata_can_be_granted_and_high_bits_do_not_matter(name):
    assert Filter(name)("fchmodat") == EPERM
    assert Filter(name, file_metadata=True)("fchmodat") == ALLOW
    assert Filter(name)("ioctl", 0, (1 << 32) | 0x5412) == EPERM
    assert Filter(name)("ioctl", 0, (1 << 32) | 0x5413) == ALLOW
    assert Filter(name)("prlimit64", 0, 7, 0) == ALLOW
    assert Filter(name)("prlimit64", 0, 7, 1 << 32) == EPERM


rules = st.builds(
    Rule,
    st.sampled_from([ALLOW, EPERM, EACCES]),
    st.lists(
        st.builds(
            Clause,
            st.lists(
                st.builds(
                    Check,
                    st.integers(0, 5),
                    st.integers(0, 7),
                    st.sampled_from([7, 3, 0xFFFFFFFF]),
                    st.sampled_from(["low", "high"]),
                    st.sampled_from(["eq", "any"]),
                ),
                max_size=3,
            ).map(tuple),
            st.sampled_from([ALLOW, EPERM, EACCES, NOTIFY]),
        ),
        max_size=4,
    ).map(tuple),
)


def meant(rule, arguments):
    for clause in rule.clauses:
        for check in clause.checks:
            half = arguments[check.argument] >> (32 if check.half == "high" else 0) & 0xFFFFFFFF & check.mask
            if not (half == check.value if check.kind == "eq" else half):
                break
        else:
            return clause.answer
    return rule.answer


word = st.builds(lambda high, low: high << 32 | low, st.integers(0, 8), st.integers(0, 8))


@given(st.dictionaries(st.integers(0, 300), rules, min_size=1), st.integers(0, 320), st.lists(word, min_size=6))
def test_the_program_means_what_the_table_says(table, number, arguments):
    code = bpf.assemble(7, table, ENOSYS).for_pid(1)
    expected = meant(table[number], arguments) if number in table else ENOSYS
    assert answer(code, 7, number, arguments) == expected


def test_rights_by_abi():
    newest = landlock.handled(landlock.NEWEST_ABI)
    assert (newest.files, newest.network, newest.scopes) == ((1 << 17) - 1, 0b1111, 0b11)
    assert landlock.handled(1) == landlock.Handled((1 << 13) - 1, 0, 0)
    for abi in range(2, landlock.NEWEST_ABI + 1):
        older, newer = landlock.handled(abi - 1), landlock.handled(abi)
        assert older.files & newer.files == older.files
        assert older.network & newer.network == older.network
        assert older.scopes & newer.scopes == older.scopes


def test_every_name_of_the_rules_is_a_system_call():
    known = {name for arch in ARCHITECTURES.values() for name in arch.numbers}
    unknown = set(seccomp.rules(Profile(landlock_abi=1))) - known
    assert unknown == set()
