"""Every attack against decoys of our own, as root and as an ordinary user, for each Landlock ABI, forked and exec'd."""

import json
from pathlib import Path

import pytest
from tests.sandbox import attacks

from toolsd.sandbox import landlock
from toolsd.sandbox.syscalls import native

ARENA = Path(__file__).with_name("arena.py")
KERNEL_ABI = landlock.kernel_abi(native())


def fight(person, abi, way):
    done = person.run(ARENA, abi, way)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("way", ["forked", "launched"])
@pytest.mark.parametrize("abi", range(1, KERNEL_ABI + 1))
def test_every_attack_is_held(person, abi, way):
    seen = fight(person, abi, way)
    assert seen["abi"] == abi
    assert (seen["uid"] is not None) == (person.name == "root")
    assert set(seen["outcomes"]) >= set(attacks.ATTACKS)
    assert {name: what for name, what in seen["outcomes"].items() if what is not None} == {}


def test_the_attacks_do_get_through_without_a_sandbox(person):
    outcomes = fight(person, KERNEL_ABI, "unconfined")["outcomes"]
    assert {name for name, what in outcomes.items() if what is None} == set()
