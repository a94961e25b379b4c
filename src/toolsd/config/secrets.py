"""The environment of a worker: names passed through, plain values, and secrets by reference.

A resolved secret exists only in the `env` of a `Launch`. What is shown of it is the reference.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from toolsd.config.positions import Path
from toolsd.config.reader import Reader
from toolsd.config.units import ENV_NAME, shown

_SECRET_FILE_MAX = 64 * 1024
# A value written out under such a name is a secret in a file that people copy and commit.
_SECRET = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|APIKEY|(?:API|ACCESS|PRIVATE|SECRET|AUTH)_KEY)(?:$|_)",
    re.IGNORECASE,
)


class Environment:
    """Reads `env` tables. `directory` is where relative paths start, `environ` is where references look."""

    def __init__(self, reader: Reader, directory: FilePath, environ: Mapping[str, str]) -> None:
        self._reader = reader
        self._directory = directory
        self._environ = environ

    def passed(self, names: tuple[str, ...]) -> dict[str, str]:
        """The variables of `env_pass` that are set."""
        return {name: self._environ[name] for name in names if name in self._environ}

    def read(self, table: dict[str, Any], path: Path) -> dict[str, tuple[str, str]]:
        """`env` of one source: name -> (value, what may be shown of it)."""
        found: dict[str, tuple[str, str]] = {}
        for name, value in table.items():
            if not ENV_NAME.fullmatch(name):
                self._reader.mistake((*path, name), "is not the name of an environment variable")
                continue
            entry = self._plain(name, value, path) if isinstance(value, str) else self._reference(value, (*path, name))
            if entry is not None:
                found[name] = entry
        return found

    def secret_files(self, sources: dict[str, Any]) -> list[str]:
        """Real paths of all files that sources take secrets from, well-formed or not: no source may be granted them."""
        tables = (source.get("env") for source in sources.values() if isinstance(source, dict))
        entries = (entry for table in tables if isinstance(table, dict) for entry in table.values())
        files = (entry.get("from_file") for entry in entries if isinstance(entry, dict))
        return [
            os.path.realpath(self._directory / FilePath(file).expanduser())
            for file in files
            if isinstance(file, str) and file and "\0" not in file
        ]

    def _plain(self, name: str, value: str, path: Path) -> tuple[str, str] | None:
        if _SECRET.search(name):
            hint = f'write {name} = {{ from_env = "{name}" }} or {{ from_file = "..." }}'
            self._reader.mistake((*path, name), "looks like a secret; secrets are given by reference only", hint)
            return None
        if "\0" in value:
            self._reader.mistake((*path, name), "must not contain a NUL character")
            return None
        return value, value

    def _reference(self, value: Any, at: Path) -> tuple[str, str] | None:
        how, reference = next(iter(value.items())) if isinstance(value, dict) and len(value) == 1 else ("", None)
        if how not in {"from_env", "from_file"}:
            hint = 'write "text", { from_env = "NAME" } or { from_file = "path" }'
            self._reader.mistake(at, f"must be text or one reference, not {shown(value)}", hint)
            return None
        at = (*at, how)
        if not isinstance(reference, str) or not reference or "\0" in reference:
            self._reader.mistake(at, f"must be text in quotes, not {shown(reference)}")
            return None
        if how == "from_env":
            if reference in self._environ:
                return self._environ[reference], f"(from environment variable {reference})"
            hint = f"set it before starting toolsd: export {reference}=..."
            self._reader.mistake(at, f"the environment variable {reference} is not set", hint)
            return None
        try:
            return _secret_file(self._directory / FilePath(reference).expanduser()), f"(from file {reference})"
        except _Unusable as problem:
            self._reader.mistake(at, str(problem), problem.hint)
            return None


class _Unusable(Exception):
    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def _secret_file(path: FilePath) -> str:
    try:
        # Looked at through the open descriptor, so that what was checked is what is read.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise _Unusable(f"{path} cannot be read: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise _Unusable(f"{path} is not a file")
        if state.st_mode & 0o077:
            mode = stat.S_IMODE(state.st_mode)
            raise _Unusable(f"{path} may be read by others (mode {mode:04o})", f"chmod 600 {path}")
        data = file.read(_SECRET_FILE_MAX + 1)
    if len(data) > _SECRET_FILE_MAX:
        raise _Unusable(f"{path} is larger than {_SECRET_FILE_MAX // 1024} KiB")
    try:
        secret = data.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise _Unusable(f"{path} is not UTF-8 text") from error
    if not secret or "\0" in secret:
        raise _Unusable(f"{path} is empty" if not secret else f"{path} contains a NUL character")
    return secret
