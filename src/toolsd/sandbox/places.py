"""Which folders belong to what: the interpreter, the system's libraries, a source's own files.

Owns these lists. Looks at the file system, grants nothing.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterable
from functools import cache

from toolsd.sandbox.policy import covers

# What a dynamically linked program reads before and while it runs.
LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/lib32", "/lib", "/lib64", "/usr/local/lib")
SYSTEM = (
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/usr/share/zoneinfo",
    "/usr/share/locale",
    "/etc/mime.types",
    "/etc/ssl/openssl.cnf",
)
# What name resolution and TLS read; only for sources with a network.
NETWORK = (
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/ssl",
    "/usr/share/ca-certificates",
    "/etc/pki",
)
DEVICES_READ = ("/dev/zero", "/dev/random", "/dev/urandom")
DEVICES_WRITE = ("/dev/null",)
# How deep the kernel follows scripts whose interpreters are scripts (execve(2)).
_INTERPRETERS = 4


@cache
def interpreter() -> tuple[str, ...]:
    """The running interpreter: its program, standard library, shared library and site-packages, as real paths."""
    libraries = os.path.join(sys.base_prefix, sys.platlibdir)
    shared = glob.glob(os.path.join(glob.escape(libraries), "libpython*.so*"))
    return _real([sys.executable, os.path.dirname(os.__file__), *shared])


@cache
def ours() -> tuple[str, ...]:
    """The folders of toolsd's two packages."""
    workers = importlib.util.find_spec("toolsd_workers")
    found = workers.submodule_search_locations if workers is not None else None
    return _real([os.path.dirname(os.path.dirname(__file__)), *(found or ())])


def code() -> tuple[str, ...]:
    """All code that every source runs: the interpreter, its site-packages, and toolsd itself."""
    return (*interpreter(), *imports(sys.path), *ours())


def imports(path: Iterable[str]) -> tuple[str, ...]:
    """The site-packages of an import path. Its other entries (a script's folder, a working directory, what a `.pth`
    file added) may hold anything, so they must be granted by name.
    """
    return _real(entry for entry in path if os.path.basename(entry) in ("site-packages", "dist-packages"))


def own_files(path: str, directory: str, *private: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(what the source may read, folders whose listing it may read) of its own code.

    `path` is a file or a dotted module name below `directory`, the folder of the configuration. A file's folder is its
    source's own, unless the configuration, the home directory or one of `private` lies in it (then other things do
    too): then the file alone. A package is read whole. A source without a path has no files.
    """
    if not path:
        return (), ()
    directory = os.path.realpath(directory)
    if os.path.isabs(path):
        real = os.path.realpath(path)
        folder = os.path.dirname(real)
        others = (directory, os.path.realpath(os.path.expanduser("~")), *map(os.path.realpath, private))
        return ((real,) if any(covers(folder, other) for other in others) else (folder,)), ()
    top = os.path.join(directory, path.partition(".")[0])
    found = _real(entry for entry in (top, top + ".py") if os.path.exists(entry))
    return found, (directory,) if found else ()


def find_program(name: str, directory: str, path: str) -> str | None:
    """The absolute path of a program: found on `path` by its bare name, else at its place below `directory`."""
    if "/" not in name:
        return shutil.which(name, path=path)
    return shutil.which(os.path.normpath(os.path.join(directory, os.path.expanduser(name))))


def executed(program: str, path: str) -> tuple[str, ...]:
    """All files that executing `program` executes: itself, and if it is a script, its interpreter (execve(2)).

    An interpreter that `env` looks for is looked for on `path`, as `env` will.
    """
    found = [program]
    for _ in range(_INTERPRETERS):
        words = _first_line(found[-1])
        if not words:
            break
        found.append(words[0])
        if os.path.basename(words[0]) == "env":
            named = next((word for word in words[1:] if not word.startswith("-")), "")
            looked = shutil.which(named, path=path) if named else None
            if looked is None:
                break
            found.append(looked)
    return _real(found)


def _first_line(program: str) -> list[str]:
    """The words behind `#!` of a script; nothing for another program."""
    try:
        with open(program, "rb") as file:
            line = file.readline(256)
    except OSError:
        return []
    return os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []


def _real(paths: Iterable[str]) -> tuple[str, ...]:
    real = (os.path.realpath(path) for path in paths if path)
    return tuple(dict.fromkeys(path for path in real if os.path.exists(path)))
