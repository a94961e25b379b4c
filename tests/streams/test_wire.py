"""Text off the wire, cut anywhere."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolsd.streams.wire import WireDecoder


def decoded(pieces):
    decoder = WireDecoder()
    items = [item for piece in pieces for item in decoder.feed(piece)]
    return items + decoder.flush()


def values(*pieces):
    return [item.value for item in decoded(pieces) if item.undecodable is None]


def lost(*pieces):
    return sum(item.undecodable is not None for item in decoded(pieces))


A, B = {"a": 1}, {"b": "ü😀\n"}


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_events(end):
    text = end.join(
        [": comment", "", "event: x", "id: 7", "retry: 10", 'data: {"a":', "data: 1}", "", "data", "", "unknown: y", ""]
    )
    text += end + "data:" + json.dumps(B, ensure_ascii=False) + end + end + "data: [DONE]" + end + end
    raw = b"\xef\xbb\xbf" + text.encode()
    for size in (1, 2, 3, 5, 10_000):
        items = decoded([raw[at : at + size] for at in range(0, len(raw), size)])
        assert [(item.value, item.event) for item in items] == [(A, "x"), (B, None)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('data: {"a": 1}', [A]),  # the end of the stream ends the event
        ('data: {"a": 1}\ndata: {"a": 1}\n\n', [A, A]),  # a server that forgets the blank lines
        ('data: {"a": 1}\n\n{"error": 1}\n', [A, {"error": 1}]),
        ('{"a": 1}\n\n \r\n{"a": 1}', [A, A]),
        ('{"a": 1}\ndata: {"a": 1}\n\n', [A, A]),
        ('{\n  "a": 1\n}\n', [A]),
        ('[{"a": 1}\n,\n{"b": "ü😀\\n"}\n]\n', [A, B]),
        ('[{"a": 1}, {"b": "ü😀\\n"}]', [A, B]),
        ('[{"x": "]}\\"[{"}]', [{"x": ']}"[{'}]),
        ('{"a": 1}{"a": 1} {"a": 1}\n', [A, A, A]),
        ('data: {"a": 1}{"a": 1}[DONE]\n\n', [A, A]),
        ("[DONE]", []),
        ("\n\n", []),
        ("", []),
    ],
)
def test_other_framings(text, found):
    for size in (1, 3, 10_000):
        raw = text.encode()
        assert values(*(raw[at : at + size] for at in range(0, len(raw), size))) == found
        assert values(*(text[at : at + size] for at in range(0, len(text), size))) == found
    assert lost(text) == 0


@pytest.mark.parametrize(
    "text",
    [
        "data: {broken\n\n",
        'data: {"a": "lo',
        '{"a": 1\n',
        "not json\n",
        "[not json\n",
        '[{"a": ',
        b'data: {"a": "\xff"}\n\n',  # half a character is a lost character
        '{"a": "\ud83d"}\n',
        "data: " + "[" * 100_000 + "\n\n",
        "data: " + "9" * 5000 + "\n\n",
    ],
)
def test_what_does_not_decode_is_counted(text):
    assert lost(text) == 1
    assert values(text) == []


def test_flush_starts_anew():
    decoder = WireDecoder()
    decoder.feed('{"a"')
    assert decoder.flush()[0].undecodable
    assert [item.value for item in decoder.feed('data: {"a": 1}\n\n')] == [A]


TEXTS = st.text(max_size=6) | st.lists(st.sampled_from(["}", "data:", "{", '"', ":", "event: x", "a"])).map("".join)
CHUNKS = st.lists(st.dictionaries(st.text(max_size=4), TEXTS | st.integers(), max_size=3), max_size=5)


@given(CHUNKS, st.sampled_from(["\n", "\r\n", "\r"]), st.booleans(), st.data())
def test_cuts_make_no_difference(chunks, end, events, data):
    lines = [json.dumps(chunk, ensure_ascii=data.draw(st.booleans())) for chunk in chunks]
    text = "".join(f"data: {line}{end}{end}" if events else line + end for line in lines)
    raw = text.encode("utf-8", "surrogatepass")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert decoded(pieces) == decoded([raw])


@given(CHUNKS.filter(all))
def test_lines_without_their_ends(chunks):
    lines = [json.dumps(chunk) for chunk in chunks]
    events = [piece for line in lines for piece in ("event: e", "data: " + line, "")]
    for pieces in (lines, events, [f"data: {line}" for line in lines], [": ping", *events, "data: [DONE]", ""]):
        assert values(*pieces) == chunks
        assert lost(*pieces) == 0


@given(st.lists(st.binary() | st.text('data:{}[]" \n\r\\,1e')))
def test_anything_ends(pieces):
    decoded(pieces)
