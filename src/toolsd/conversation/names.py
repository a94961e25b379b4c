"""Tool names that a provider accepts, made from those it does not.

Owns the mapping. A name that is changed always ends in a digest of the whole name, so what it becomes depends on
nothing but itself: not on which other tools there are, and not on a reload.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Container

import msgspec

_DIGEST = 6


class NameRule(msgspec.Struct, frozen=True):
    """What a name may look like: a first character, further ones (both as the inside of a `[...]`), a length."""

    first: str
    further: str
    longest: int

    def allows(self, name: str) -> bool:
        return len(name) <= self.longest and re.fullmatch(f"[{self.first}][{self.further}]*", name) is not None

    def fit(self, name: str, taken: Container[str] = ()) -> str:
        """`name` if it is allowed, else an allowed one for it that is not in `taken`."""
        if self.allows(name):
            return name
        cleaned = re.sub(f"[^{self.further}]+", "_", name)
        if not re.match(f"[{self.first}]", cleaned):
            cleaned = "t_" + cleaned.lstrip("_")
        digest = base64.b32encode(hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()).decode().lower()
        for length in range(_DIGEST, 40):
            fitting = f"{cleaned[: self.longest - length - 1].rstrip('_')}_{digest[:length]}"
            if fitting not in taken:
                break
        return fitting


LETTERS = NameRule("a-zA-Z0-9_-", "a-zA-Z0-9_-", 64)
