"""A pure assembler: from a rule table to the classic-BPF program seccomp runs on each system call.

Owns the shape of the program. Knows neither which calls exist nor which are allowed, and makes no system call.

Theory of operation. The program checks the architecture, kills foreign entry points, then finds the call's rule by
binary search over ranges of numbers with equal rules. A rule is a list of clauses, each a conjunction of checks on
arguments with an answer; the first clause that holds answers, otherwise the rule's own answer counts. Arguments are 64
bits wide in the kernel's record while most calls read only the low half, so a check says which half it reads
(CVE-2019-10063 was a comparison of both).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

ALLOW: Final = 0x7FFF0000
KILL: Final = 0x80000000
NOTIFY: Final = 0x7FC00000
_ERRNO: Final = 0x00050000

# Stands for the pid of the process that installs the program: known only after the fork.
SELF_PID: Final = -1

_LOAD, _AND, _RET = 0x20, 0x54, 0x06
_JA, _JEQ, _JGE, _JSET = 0x05, 0x15, 0x35, 0x45
_X32_BIT: Final = 0x40000000

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, constant


def errno_(number: int) -> int:
    """The answer that makes a call fail with `number`."""
    return _ERRNO | number


class Check(NamedTuple):
    """`(argument & mask) == value` (`eq`) or `argument & mask != 0` (`any`), on one 32-bit half of an argument."""

    argument: int
    value: int
    mask: int = 0xFFFFFFFF
    half: Literal["low", "high"] = "low"
    kind: Literal["eq", "any"] = "eq"


def null(argument: int) -> tuple[Check, Check]:
    """The whole 64-bit argument is zero: a null pointer."""
    return (Check(argument, 0), Check(argument, 0, half="high"))


class Clause(NamedTuple):
    checks: tuple[Check, ...]
    answer: int


class Rule(NamedTuple):
    """What to answer when no clause holds, and the clauses, first match wins."""

    answer: int
    clauses: tuple[Clause, ...] = ()


class Program(NamedTuple):
    """The assembled bytes and where the pid of the installing process goes."""

    code: bytes
    pid_at: tuple[int, ...]

    def for_pid(self, pid: int) -> bytes:
        code = bytearray(self.code)
        for offset in self.pid_at:
            struct.pack_into("=I", code, offset, pid)
        return bytes(code)

    def __len__(self) -> int:
        return len(self.code) // 8


def assemble(audit: int, rules: Mapping[int, Rule], unknown: int) -> Program:
    """The program for one architecture. Numbers without a rule get the answer `unknown`.

    Raises:
        ValueError: the program is longer than the kernel takes (BPF_MAXINSNS, 4096).
    """
    program: list[Instruction] = [
        (_LOAD, 0, 0, 4),
        (_JEQ, 1, 0, audit),
        (_RET, 0, 0, KILL),
        (_LOAD, 0, 0, 0),
        (_JGE, 0, 1, _X32_BIT),
        (_RET, 0, 0, KILL),
        *_search(_ranges(rules, Rule(unknown))),
    ]
    if len(program) > 4096:
        raise ValueError(f"the filter has {len(program)} instructions, the kernel takes 4096")
    code, pid_at = bytearray(), []
    for op, true, false, constant in program:
        if constant == SELF_PID:
            pid_at.append(len(code) + 4)
        code += struct.pack("=HBBI", op, true, false, max(constant, 0))
    return Program(bytes(code), tuple(pid_at))


def _ranges(rules: Mapping[int, Rule], unknown: Rule) -> list[tuple[int, Rule]]:
    """(first number, rule), in order, each holding until the next one's first number."""
    ranges = [(0, rules.get(0, unknown))]
    for number in range(1, max(rules) + 1):
        rule = rules.get(number, unknown)
        if rule != ranges[-1][1]:
            ranges.append((number, rule))
    return [*ranges, (max(rules) + 1, unknown)]


def _search(ranges: list[tuple[int, Rule]]) -> list[Instruction]:
    if len(ranges) == 1:
        return _rule(ranges[0][1])
    middle = len(ranges) // 2
    left, right = _search(ranges[:middle]), _search(ranges[middle:])
    return [(_JGE, 0, 1, ranges[middle][0]), (_JA, 0, 0, len(left)), *left, *right]


def _rule(rule: Rule) -> list[Instruction]:
    program: list[Instruction] = []
    for clause in rule.clauses:
        program += _clause(clause)
    return [*program, (_RET, 0, 0, rule.answer)]


def _clause(clause: Clause) -> list[Instruction]:
    """Each failed check jumps behind the clause's answer. Built from the end, so that distances are known."""
    program: list[Instruction] = [(_RET, 0, 0, clause.answer)]
    for check in reversed(clause.checks):
        offset = 16 + 8 * check.argument + (4 if check.half == "high" else 0)
        if check.kind == "any":
            head: list[Instruction] = [(_LOAD, 0, 0, offset), (_JSET, 0, len(program), check.mask)]
        elif check.mask == 0xFFFFFFFF:
            head = [(_LOAD, 0, 0, offset), (_JEQ, 0, len(program), check.value)]
        else:
            head = [(_LOAD, 0, 0, offset), (_AND, 0, 0, check.mask), (_JEQ, 0, len(program), check.value)]
        program = head + program
    return program
