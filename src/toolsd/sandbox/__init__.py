"""What a worker may do: a pure plan, made by the node, and its application in the worker.

`plan_for` decides, `apply` does. Nothing foreign runs in a worker before `apply` has returned, and nothing else in
toolsd touches the kernel's confinement interfaces.
"""

from toolsd.sandbox.apply import apply, become_subreaper, die_with_parent
from toolsd.sandbox.plan import Plan, plan_for

__all__ = ["Plan", "apply", "become_subreaper", "die_with_parent", "plan_for"]
