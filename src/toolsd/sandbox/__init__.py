"""What a worker may do: decided by the node, proven in the forkserver, applied in the worker.

`policy` (what people grant) and `plan` (environment, scratch, limits) decide and can be imported anywhere. `tier` and
`canary` find out what this machine really enforces, `gate` admits a worker or refuses it. `apply` runs between the fork
and the first line of foreign code; `seal` (with `privileges`, `landlock` and `seccomp`) is its last step, for good.
`broker` connects in a worker's stead. Nothing else in toolsd touches the kernel's confinement interfaces.
"""
