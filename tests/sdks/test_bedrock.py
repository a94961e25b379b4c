"""botocore's client for Bedrock's ConverseStream through a whole loop of two rounds."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any

import pytest

import toolsd

from .server import PICTURE, Provider
from .workshop.weather import PIXEL

boto3 = pytest.importorskip("boto3")
config = pytest.importorskip("botocore.config")


def framed(events: list[tuple[str, dict[str, Any]]]) -> bytes:
    """AWS's event stream: length of the whole, length of the headers, checksum; headers, JSON; checksum."""
    found = b""
    for kind, body in events:
        headers = b""
        for key, value in ((":message-type", "event"), (":event-type", kind), (":content-type", "application/json")):
            headers += bytes([len(key)]) + key.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        data = json.dumps(body).encode()
        prelude = struct.pack(">II", 16 + len(headers) + len(data), len(headers))
        message = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + data
        found += message + struct.pack(">I", zlib.crc32(message))
    return found


def text(index: int, *pieces: str) -> list[tuple[str, dict[str, Any]]]:
    deltas = [("contentBlockDelta", {"contentBlockIndex": index, "delta": {"text": piece}}) for piece in pieces]
    return [*deltas, ("contentBlockStop", {"contentBlockIndex": index})]


def call(index: int, id: str, name: str, *pieces: str) -> list[tuple[str, dict[str, Any]]]:
    start = {"contentBlockIndex": index, "start": {"toolUse": {"toolUseId": id, "name": name}}}
    deltas = [
        ("contentBlockDelta", {"contentBlockIndex": index, "delta": {"toolUse": {"input": piece}}}) for piece in pieces
    ]
    return [("contentBlockStart", start), *deltas, ("contentBlockStop", {"contentBlockIndex": index})]


def answer(*events: tuple[str, dict[str, Any]], reason: str) -> bytes:
    return framed([("messageStart", {"role": "assistant"}), *events, ("messageStop", {"stopReason": reason})])


def test_two_rounds(client: toolsd.Client, provider: Provider) -> None:
    kind = "application/vnd.amazon.eventstream"
    reasoning = [
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"reasoningContent": part}})
        for part in ({"text": "hm"}, {"signature": "c2ln"})
    ]
    calls = [
        *call(2, "tooluse_a", "forecast", '{"city": ', '"Oslo", "days": 1}'),
        *call(3, "tooluse_b", PICTURE, '{"city": "Rome"}'),
        *call(4, "tooluse_b", "forecast", '{"city": "Rome", "days": 30}'),
    ]
    provider.will_say(answer(*reasoning, *text(1, "Let me ", "look."), *calls, reason="tool_use"), kind)
    provider.will_say(answer(*text(0, "It is sunny."), reason="end_turn"), kind)
    api = boto3.client(
        "bedrock-runtime", endpoint_url=provider.url, region_name="us-east-1", aws_access_key_id="k",
        aws_secret_access_key="s", config=config.Config(retries={"max_attempts": 0}, read_timeout=30),
    )  # fmt: skip
    messages: list[Any] = [{"role": "user", "content": [{"text": "How is the weather?"}]}]
    tools = client.tools("bedrock")
    for _ in range(2):
        turn = client.turn()
        # botocore checks every request against the service's model.
        for event in api.converse_stream(modelId="m", messages=messages, toolConfig={"tools": tools})["stream"]:
            turn.feed(event)
        turn.finish()
        messages += turn.messages()
    api.close()
    assert turn.messages() == []
    request = provider.requests[1].body
    assert [tool["toolSpec"]["name"] for tool in request["toolConfig"]["tools"]] == ["forecast", PICTURE, "note"]
    said, results = request["messages"][1:]
    third = said["content"][4]["toolUse"]["toolUseId"]
    assert third.startswith("tooluse_") and third != "tooluse_b"
    assert said["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}},
        {"text": "Let me look."},
        {"toolUse": {"toolUseId": "tooluse_a", "name": "forecast", "input": {"city": "Oslo", "days": 1}}},
        {"toolUse": {"toolUseId": "tooluse_b", "name": PICTURE, "input": {"city": "Rome"}}},
        {"toolUse": {"toolUseId": third, "name": "forecast", "input": {"city": "Rome", "days": 30}}},
    ]
    image = {"format": "png", "source": {"bytes": base64.b64encode(PIXEL).decode()}}
    assert [result["toolResult"] for result in results["content"][:2]] == [
        {"toolUseId": "tooluse_a", "content": [{"json": {"city": "Oslo", "sky": ["sun"]}}], "status": "success"},
        {"toolUseId": "tooluse_b", "content": [{"text": "radar of Rome"}, {"image": image}], "status": "success"},
    ]
    assert results["content"][2]["toolResult"]["toolUseId"] == third
    assert results["content"][2]["toolResult"]["status"] == "error"
