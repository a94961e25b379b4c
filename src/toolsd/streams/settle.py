"""From a draft to a call: the arguments are decided once, at the end of the stream, from the list of fragments.

A strict parse of the joined text comes first. Only where it fails, and only in tolerant mode, a few repairs are tried
in a fixed order; each is a way in which real servers send arguments that are whole, and each leaves a note. None adds
a character that the model did not send. The rules and their sources: issue reports collected for each of the notes.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import Any, NamedTuple

from toolsd.streams.arguments import MAX_DEPTH, ArgumentsMalformed, encodable, pair_surrogates, parse, values
from toolsd.streams.assembly import AssembledCall
from toolsd.streams.draft import Draft, Fragment, as_json

# What tool names are made of at any provider or in MCP; template markers, spaces and control characters are not.
_NAME = re.compile(r"[\w.:/@#$+~-]{1,256}")
_FENCE = re.compile(r"`{3,}|~{3,}")
_INFO = re.compile(r"[ \t]*[\w+.-]{0,32}[ \t\r]*\n|[A-Za-z]{0,32}")


class Settled(NamedTuple):
    """Arguments after settlement: `value` is the object, or None where `defect` says why there is none."""

    text: str
    value: dict[str, Any] | None
    defect: str | None
    notes: tuple[str, ...] = ()


def settle(draft: Draft, index: int, *, repair: bool = True, max_depth: int = MAX_DEPTH) -> AssembledCall:
    """`draft` as call `index` of its turn, with every call-level defect but `duplicate_id`, which needs the others."""
    notes = list(draft.notes or ())
    defects = list(draft.defects or ())
    value: Any
    if draft.custom:
        text = pair_surrogates(draft.text())
        value, defect = text, None
        if encodable(text) is not text:
            defect = "lone_surrogate"
    else:
        text, value, defect, repairs = settle_arguments(draft.chosen(), repair=repair, max_depth=max_depth)
        notes += repairs
    if defect and not defects:
        defects.append(defect)
    if not draft.closed:
        defects.append("unterminated_block")
    name = draft.name.strip() if repair else draft.name
    if not name:
        defects.append("empty_name")
    elif not _NAME.fullmatch(name):
        defects.append("illegal_name")
    runnable = not defects
    if draft.id is None:
        (defects if draft.needs_id else notes).append("missing_id" if draft.needs_id else "note:missing_id")
    return AssembledCall(
        index=index,
        id=None if draft.id is None else encodable(draft.id),
        name=encodable(name),
        arguments=encodable(text),
        parsed=value if runnable else None,
        defects=tuple(defects),
        notes=tuple(notes),
        custom=draft.custom,
        extra=dict(draft.extra or {}),
    )


def settle_arguments(fragments: list[Fragment], *, repair: bool = True, max_depth: int = MAX_DEPTH) -> Settled:
    """The arguments that `fragments` amount to. Linear in their total length."""
    notes: tuple[str, ...] = ()
    try:
        text = "".join(fragments)  # type: ignore[arg-type]  # nearly always they are all text
    except TypeError:
        fragments, notes = _written(fragments, repair)
        text = "".join(fragments)  # type: ignore[arg-type]
    text = pair_surrogates(text)
    try:
        parsed = parse(text, max_depth=max_depth)
    except ArgumentsMalformed as error:
        pieces = [str(fragment) for fragment in fragments if fragment != ""]
        mended = _repair(text, pieces, max_depth) if repair else None
        return mended or Settled(text, None, error.defect)
    if parsed.double_encoded:
        notes += ("note:double_encoded",)
    return Settled(parsed.text, parsed.value, None, notes)


def _written(fragments: list[Fragment], repair: bool) -> tuple[list[Fragment], tuple[str, ...]]:
    """Fragments with objects among them as text: several objects as one where they agree, else one after another."""
    objects = [fragment for fragment in fragments if isinstance(fragment, dict)]
    if repair and len(objects) > 1 and all(isinstance(fragment, dict) or fragment == "" for fragment in fragments):
        merged = _merge(objects)
        if merged is not None:
            return [as_json(merged[0])], merged[1]
    return [fragment if isinstance(fragment, str) else as_json(fragment) for fragment in fragments], ()


def _repair(text: str, pieces: list[str], max_depth: int) -> Settled | None:
    """The first of the listed repairs that gives an object, in their order."""
    if text.strip() == "null":
        return Settled(text, {}, None, ("note:null_arguments",))
    if len(pieces) > 1 and all(later.startswith(former) for former, later in itertools.pairwise(pieces)):
        last = _object(pair_surrogates(pieces[-1]), max_depth)
        if last is not None and len(pieces[0]) < len(pieces[-1]):
            return Settled(last[0], last[1], None, ("note:cumulative_arguments",))
    parts = values(text, max_depth=max_depth)
    if parts is not None and len(parts) > 1 and all(isinstance(value, dict) for value, _ in parts):
        first, last_text = parts[0], parts[-1][1]
        if all(_same(value, first[0]) for value, _ in parts[1:]):
            return _usable(first[1], max_depth, "note:repeated_arguments")
        if len(parts) == 2 and first[0] == {}:
            return _usable(last_text, max_depth, "note:leading_empty_object")
    fenced = _unfenced(text)
    if fenced is not None:
        found = _usable(fenced, max_depth, "note:code_fence")
        if found is not None:
            return found
    lax = _object(text, max_depth, strict=False)
    if lax is not None:
        return Settled(lax[0], lax[1], None, ("note:control_characters",))
    return None


def _unfenced(text: str) -> str | None:
    """What one Markdown fence around the whole text encloses; None if there is no such fence."""
    text = text.strip()
    fence = _FENCE.match(text)
    if fence is None or not text.endswith(fence[0]) or len(text) < 2 * len(fence[0]):
        return None
    inner = text[len(fence[0]) : -len(fence[0])]
    info = _INFO.match(inner)
    return inner[info.end() if info else 0 :].strip()


def _usable(text: str, max_depth: int, note: str) -> Settled | None:
    found = _object(text, max_depth)
    return None if found is None else Settled(found[0], found[1], None, (note,))


def _object(text: str, max_depth: int, *, strict: bool = True) -> tuple[str, dict[str, Any]] | None:
    try:
        parsed = parse(text, max_depth=max_depth, strict=strict)
    except ArgumentsMalformed:
        return None
    return (parsed.text, parsed.value) if not parsed.double_encoded and text.strip() else None


def _same(left: Any, right: Any) -> bool:
    """Equality as JSON sees it: `1`, `1.0` and `true` differ, the order of keys does not matter."""
    try:
        return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return False


def _merge(objects: list[dict[str, Any]]) -> tuple[dict[str, Any], tuple[str, ...]] | None:
    """Objects that were sent in pieces as one: keys are added, a value may be sent again or a text may grow.

    None where two of them contradict each other; then they may be two calls, and which one is not for us to say.
    """
    merged: dict[str, Any] = {}
    again = grown = False
    for piece in objects:
        for key, value in piece.items():
            if key in merged:
                old = merged[key]
                if _same(old, value):
                    again = True
                elif isinstance(old, str) and isinstance(value, str) and value.startswith(old):
                    grown = True
                else:
                    return None
            merged[key] = value
        again = again and len(piece) == len(merged)
    if not (again or grown):
        return merged, ()
    equal = not grown and all(len(piece) == len(merged) for piece in objects)
    return merged, ("note:repeated_arguments" if equal else "note:cumulative_arguments",)
