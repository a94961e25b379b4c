"""Who runs a test program: the user of the test run, and as root also an ordinary user."""

import os
import shutil
import subprocess
import sys
import sysconfig

import toolsd_workers

import toolsd

NOBODY = 65534
_BECOME = (
    "import os, sys; os.setgroups([]); os.setresgid(*[{0}] * 3); os.setresuid(*[{0}] * 3);"
    "os.execv(sys.argv[1], sys.argv[1:])"
)


class Person:
    """`run(program, *arguments)` runs a Python program as somebody and returns the finished process."""

    def __init__(self, name, python, path, become=()):
        self.name, self.python, self.path, self.become = name, python, path, become

    def __repr__(self):
        return self.name

    def run(self, program, *arguments, timeout=60):
        command = [*self.become, self.python, "-B", program, *map(str, arguments)]
        environment = {"PYTHONPATH": os.pathsep.join(self.path), "PATH": os.environ["PATH"], "HOME": "/nonexistent"}
        return subprocess.run(
            command, env=environment, cwd="/", capture_output=True, text=True, timeout=timeout, check=False
        )


def myself():
    path = [entry for entry in sys.path if entry and os.path.isdir(entry)]
    return Person("root" if os.geteuid() == 0 else "ordinary", sys.executable, path)


def readable_to_all(path):
    path = os.path.realpath(path)
    if not os.path.exists(path) or not os.stat(path).st_mode & 4:
        return False
    while path != "/":
        path = os.path.dirname(path)
        if not os.stat(path).st_mode & 1:
            return False
    return True


def ordinary(folder):
    """An ordinary user, from root: an interpreter and packages that such a user can read. None when there is none."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    candidates = [os.path.realpath(sys.executable), f"/usr/bin/{version}", f"/usr/local/bin/{version}"]
    python = next((path for path in candidates if readable_to_all(path)), None)
    if python is None:
        return None
    sources = [os.path.dirname(toolsd.__file__), os.path.dirname(toolsd_workers.__file__)]
    packages = sysconfig.get_path("purelib")
    path = []
    for source, name in zip(sources, ("toolsd", "toolsd_workers"), strict=True):
        shutil.copytree(source, os.path.join(folder, name), ignore=shutil.ignore_patterns("__pycache__"))
    path.append(folder)
    if readable_to_all(packages):
        path.append(packages)
    else:
        for name in os.listdir(packages):
            if name.split(".")[0].split("-")[0] in ("msgspec", "msgpack", "zmq", "pyzmq", "click", "docstring_parser"):
                copy = shutil.copytree if os.path.isdir(os.path.join(packages, name)) else shutil.copy
                copy(os.path.join(packages, name), os.path.join(folder, name))
    return Person("ordinary", python, path, (sys.executable, "-I", "-S", "-c", _BECOME.format(NOBODY)))
