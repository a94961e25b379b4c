"""The plan: everything `apply` needs, as a value. Pure: no system call, no look at the machine."""

from __future__ import annotations

import msgspec

from toolsd.launch import Launch, Limits
from toolsd.sandbox.cgroup import Group

# Set for every worker; a source's own `env` wins. Without PATH a tool that runs `git` would depend on libc's default.
BASE_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


class Plan(msgspec.Struct, frozen=True):
    """How one worker is confined. `env` is its whole environment.

    `scratch`, its working directory, and `group`, which counts what it and all it starts use, were made by the node.
    """

    scratch: str
    env: dict[str, str]
    limits: Limits
    group: Group | None = None

    def __repr__(self) -> str:
        """Hides the values of the environment: they are secrets."""
        return f"Plan(scratch={self.scratch!r}, env={sorted(self.env)}, limits={self.limits})"


def plan_for(launch: Launch, scratch: str, group: Group | None = None) -> Plan:
    """The plan for a worker of `launch` whose private directory is `scratch` (absolute).

    The environment is built from nothing: PATH, LANG, HOME and TMPDIR (both the scratch directory), then
    `launch.env` over them. No variable of the daemon is ever passed on by itself.
    """
    env = {**BASE_ENV, "HOME": scratch, "TMPDIR": scratch, **launch.env}
    return Plan(scratch=scratch, env=env, limits=launch.limits, group=group)
