"""The recorded streams and fault cases that lie beside the repository, where they do: every one, fed in three ways."""

import json
from pathlib import Path

from toolsd.streams import CompletionAssembler

DATA = Path(__file__).resolve().parents[3] / "shared" / "streams"


def cases(name):
    path = DATA / name
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line] if path.exists() else []


def ways(chunks):
    """Decoded; as events; as lines. A chunk that is a text stands for a line that does not decode."""
    texts = [one if isinstance(one, str) else json.dumps(one) for one in chunks]
    events = "".join(f"data: {text}\n\n" for text in texts).encode()
    lines = "\n".join(texts).encode()
    yield chunks
    for raw in (events, lines):
        yield [raw]
        yield [raw[at : at + 7] for at in range(0, len(raw), 7)]


def assemble(format, pieces):
    assembler = CompletionAssembler(format)
    for piece in pieces:
        assembler.feed(piece)
    return assembler.finish()


def shown(call, expected):
    # A recorded custom call says null where a tool receives the text as it is.
    keys = [key for key in ("id", "name", "arguments", "parsed") if key in expected]
    return {key: None if key == "parsed" and expected.get("custom") else getattr(call, key) for key in keys}


def test_fault_cases_and_recorded_streams():
    wrong = []
    for name in ("faults.jsonl", "recorded.jsonl"):
        for case in cases(name):
            expected = case["expect"]
            for format in ("auto", case["format"]):
                for pieces in ways(case["chunks"]):
                    got = assemble(format, pieces)
                    calls = [{key: call[key] for key in call if key != "custom"} for call in expected["calls"]]
                    same = len(got.calls) == len(calls) and all(
                        shown(call, want) == plain
                        for call, want, plain in zip(got.calls, expected["calls"], calls, strict=True)
                    )
                    codes = set(got.codes) if "defects" in expected else {c for c in got.codes if ":" not in c}
                    same = same and codes == set(expected.get("defects", ()))
                    same = same and got.dropped_deltas == expected.get("dropped", 0)
                    if not same:
                        wrong.append((case["id"], format, got.to_json(), expected))
    assert not wrong
