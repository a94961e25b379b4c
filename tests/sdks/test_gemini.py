"""Google's client through a whole loop of two rounds."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest

import toolsd

from .server import PICTURE, Chunk, Provider, sse
from .workshop.weather import PIXEL

genai = pytest.importorskip("google.genai")
_URL_SAFE = str.maketrans("+/", "-_")
SIGNATURE = base64.b64encode(b"\xff\xfe signed +/").decode()


def chunk(*parts: dict[str, Any], finish: str | None = None, model: str = "gemini-3-pro") -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    return {"candidates": [candidate | ({"finishReason": finish} if finish else {})], "modelVersion": model}


def call(name: str, args: dict[str, Any], **more: Any) -> dict[str, Any]:
    id = {"id": more.pop("id")} if "id" in more else {}
    return {"functionCall": {"name": name, "args": args, **id}, **more}


def two_rounds(client: toolsd.Client, provider: Provider, first: list[Chunk]) -> list[Any]:
    """Stream, run, append, ask again: the contents of the second request, as the server got them."""
    provider.will_say(sse(first))
    provider.will_say(sse([chunk({"text": "It is sunny."}, finish="STOP")]))
    contents: list[Any] = [{"role": "user", "parts": [{"text": "How is the weather?"}]}]
    options = genai.types.HttpOptions(base_url=provider.url, timeout=30_000)
    tools = client.tools("gemini")
    config = genai.types.GenerateContentConfig(
        tools=tools, automatic_function_calling=genai.types.AutomaticFunctionCallingConfig(disable=True)
    )
    with genai.Client(api_key="k", http_options=options) as api:
        for _ in range(2):
            turn = client.turn()
            for piece in api.models.generate_content_stream(model="m", contents=contents, config=config):
                turn.feed(piece)
            turn.finish()
            contents += turn.messages()
    assert turn.messages() == []
    for content in contents:
        genai.types.Content.model_validate(content)
    ((declared,),) = ([entry["functionDeclarations"] for entry in provider.requests[1].body["tools"]],)
    assert [tool["name"] for tool in declared] == ["forecast", PICTURE, "note"]
    assert declared[0]["parameters"]["properties"]["city"] == {"type": "STRING", "description": "The city's name."}
    sent: list[Any] = _plain(provider.requests[1].body["contents"])
    assert sent == _plain(contents)
    return sent


def _plain(value: Any) -> Any:
    """Protobuf's JSON takes two spellings of a key and two alphabets of base64, and the SDK uses both: one of each."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return value.replace("-", "+").replace("_", "/") if value == SIGNATURE.translate(_URL_SAFE) else value
    if not isinstance(value, dict):
        return value
    return {re.sub(r"_([a-z])", lambda found: found[1].upper(), key): _plain(item) for key, item in value.items()}


def test_two_rounds(client: toolsd.Client, provider: Provider) -> None:
    sent = two_rounds(
        client,
        provider,
        [
            chunk({"text": "hm, ", "thought": True}),
            chunk({"text": "well", "thought": True}),
            chunk({"text": "Let me "}, {"text": "look."}),
            chunk(call("forecast", {"city": "Oslo", "days": 1}, thoughtSignature=SIGNATURE)),
            chunk(call(PICTURE, {"city": "Rome"}), call("forecast", {"city": "Rome", "days": 30}), finish="STOP"),
        ],
    )
    picture = {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(PIXEL).decode()}}
    assert sent[1:] == [
        {
            "role": "model",
            "parts": [
                {"text": "hm, well", "thought": True},
                {"text": "Let me look."},
                call("forecast", {"city": "Oslo", "days": 1}, thoughtSignature=SIGNATURE),
                call(PICTURE, {"city": "Rome"}),
                call("forecast", {"city": "Rome", "days": 30}),
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "name": "forecast",
                        "response": {"output": {"city": "Oslo", "sky": ["sun"]}},
                    }
                },
                {
                    "functionResponse": {
                        "name": PICTURE,
                        "response": {"output": "radar of Rome"},
                        "parts": [picture],
                    }
                },
                {
                    "functionResponse": {
                        "name": "forecast",
                        "response": {"error": "nobody knows the weather beyond 14 days"},
                    }
                },
            ],
        },
    ]


def test_an_older_model_reads_about_pictures(client: toolsd.Client, provider: Provider) -> None:
    first: list[Chunk] = [chunk(call(PICTURE, {"city": "Rome"}), finish="STOP", model="gemini-2.5-flash")]
    sent = two_rounds(client, provider, first)
    (answer,) = sent[2]["parts"]
    assert answer["functionResponse"] == {
        "name": PICTURE,
        "response": {"output": "radar of Rome\n[image/png, 69 bytes]"},
    }


def test_ids_and_arguments_in_pieces(client: toolsd.Client, provider: Provider) -> None:
    """An id twice, arguments as leaves, text after the calls: the next request is whole again."""
    leaf = {"jsonPath": "$.input", "stringValue": "x"}
    sent = two_rounds(
        client,
        provider,
        [
            chunk(call("note", {"input": "a"}, id="same")),
            chunk(call("note", {"input": "b"}, id="same")),
            chunk({"functionCall": {"name": "note", "willContinue": True}, "thoughtSignature": SIGNATURE}),
            chunk({"functionCall": {"partialArgs": [leaf], "willContinue": True}}),
            chunk({"functionCall": {}}),
            chunk({"text": "Done."}, finish="STOP"),
        ],
    )
    calls = [part["functionCall"] for part in sent[1]["parts"][:3]]
    answers = [part["functionResponse"] for part in sent[2]["parts"]]
    assert [entry["args"] for entry in calls] == [{"input": "a"}, {"input": "b"}, {"input": "x"}]
    assert [entry.get("id") for entry in calls] == [entry.get("id") for entry in answers]
    assert calls[0]["id"] == "same" != calls[1]["id"] and "id" not in calls[2]
    assert sent[1]["parts"][2]["thoughtSignature"] == SIGNATURE and sent[1]["parts"][3] == {"text": "Done."}
    assert [entry["response"]["output"] for entry in answers if "output" in entry["response"]] == [
        "noted: a",
        "noted: x",
    ]
