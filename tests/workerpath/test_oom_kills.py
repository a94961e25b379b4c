"""The out-of-memory killer's counter, in both versions of cgroups, as files."""

from __future__ import annotations

import os
import signal

import pytest

from toolsd.oom import OomKills, _counter


@pytest.mark.parametrize(
    ("membership", "file"),
    [
        ("0::/a/b\n", "a/b/memory.events"),
        ("0::/\n", "memory.events"),
        ("0::/hidden/by/a/namespace\n", "memory.events"),
        ("5:cpu:/x\n4:memory:/c/d\n0::/\n", "memory/c/d/memory.oom_control"),
        ("4:hugetlb,memory:/c\n", "memory/c/memory.oom_control"),
        ("4:memory:/elsewhere\n", "memory/memory.oom_control"),
    ],
)
def test_the_counter_is_found_and_each_rise_explains_one_death(tmp_path, membership, file):
    (tmp_path / "cgroup").write_text(membership)
    counter = tmp_path / "mounts" / file
    counter.parent.mkdir(parents=True)
    counter.write_text("low 0\noom 1\noom_kill 3\noom_group_kill 9\n")
    found = _counter(tmp_path / "cgroup", tmp_path / "mounts")
    assert found == counter
    kills = OomKills(found)
    assert kills.explain() is None
    counter.write_text("low 0\noom 1\noom_kill 5\n")
    assert "oom_kill rose to 5" in kills.explain()
    assert kills.explain() is not None
    assert kills.explain() is None
    counter.unlink()
    assert kills.explain() is None


def test_without_a_memory_cgroup_there_is_no_proof(tmp_path):
    (tmp_path / "cgroup").write_text("1:cpu:/\n0::/nowhere\n")
    assert _counter(tmp_path / "cgroup", tmp_path) is None
    assert _counter(tmp_path / "none", tmp_path) is None


def test_a_kill_is_out_of_memory_only_with_that_proof(play, tmp_path):

    counter = tmp_path / "memory.events"
    counter.write_text("oom_kill 0\n")

    async def scenario(bench):
        bench.node._oom_kills = OomKills(counter)
        for count, proof in ((0, False), (1, True), (1, False)):
            worker = await bench.start()
            counter.write_text(f"oom_kill {count}\n")
            os.kill(await bench.pid(worker), signal.SIGKILL)
            assert ((await bench.exit(worker)).oom is not None) == proof

    play(scenario)
