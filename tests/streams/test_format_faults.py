"""How each provider and its imitators break their own protocol, and what becomes of it. Cases of our own."""

import json

import pytest

from toolsd.streams import CompletionAssembler


def assemble(chunks, format="auto", **options):
    assembler = CompletionAssembler(format, **options)
    for chunk in chunks:
        assembler.feed(chunk)
    return assembler.finish()


def calls(assembly):
    return [(call.id, call.name, call.parsed) for call in assembly.calls]


# --- OpenAI Responses -------------------------------------------------------------------------------------------------


def added(output=0, call="call_a", item="fc_1", arguments="", **more):
    body = {"type": "function_call", "call_id": call, "id": item, "name": "f", "arguments": arguments, **more}
    return {"type": "response.output_item.added", "output_index": output, "item": body}


def item_done(output=0, call="call_a", item="fc_1", arguments='{"x":1}', **more):
    return {**added(output, call, item, arguments, **more), "type": "response.output_item.done"}


def grown(text, output=0, item="fc_1"):
    return {"type": "response.function_call_arguments.delta", "output_index": output, "item_id": item, "delta": text}


def done(text, output=0, item="fc_1"):
    return {"type": "response.function_call_arguments.done", "output_index": output, "item_id": item, "arguments": text}


COMPLETED = {"type": "response.completed", "response": {"status": "completed", "output": []}}
A = ("call_a", "f", {"x": 1})


@pytest.mark.parametrize(
    "chunks",
    [
        [item_done()],  # the finished item alone
        [added(), item_done()],
        [added(), done('{"x":1}')],
        [added(), grown('{"x":'), grown("1}"), done("")],
        [added(), grown('{"x":'), done('{"x":1}')],  # a lost delta: the snapshot is whole
        [added(), grown('{"x":'), item_done()],
        [added(arguments='{"x":1}')],
        [added(arguments='{"x":1}'), grown('{"x":1}')],
        [added(), grown('{"x":1}'), item_done(arguments="")],
        [grown('{"x":'), added(), grown("1}")],  # reordered: held until the item is known
        [added(item="fc_1"), grown('{"x":', item="fc_77"), grown("1}", item="fc_78"), item_done(item="fc_79")],
        [added(), {**grown('{"x":1}'), "output_index": None}],
    ],
)
def test_one_call_shown_in_many_ways(chunks):
    got = assemble([*chunks, COMPLETED])
    assert calls(got) == [A]
    assert got.codes == ()


def test_a_call_that_only_the_finished_response_shows():
    response = {"status": "completed", "output": [{"type": "message"}, item_done()["item"]]}
    assert calls(assemble([{"type": "response.completed", "response": response}])) == [A]
    assert calls(assemble([{"object": "response", **response}])) == [A]  # a body that was not streamed
    assert calls(assemble([added(1), grown('{"x":1}', 1), {"type": "response.completed", "response": response}])) == [A]


def test_parallel_items_keep_their_output_order():
    got = assemble([added(2, "call_b", "fc_2"), added(), grown('{"x":2}', 2, "fc_2"), grown('{"x":1}'), COMPLETED])
    assert calls(got) == [A, ("call_b", "f", {"x": 2})]


def test_two_items_under_one_call_id_are_two_calls():
    chunks = [added(), added(1, "call_a", "fc_2"), grown('{"x":1}'), grown('{"x":2}', 1, "fc_2"), item_done()]
    got = assemble([*chunks, item_done(1, "call_a", "fc_2", '{"x":2}'), COMPLETED])
    assert calls(got) == [A, ("call_a", "f", {"x": 2})]
    assert got.codes == ("duplicate_id@1",)


def test_an_item_keeps_what_must_go_back():
    got = assemble([added(caller={"type": "program"}), grown('{"x":1}'), COMPLETED])
    assert got.calls[0].extra == {"id": "fc_1", "caller": {"type": "program"}}


@pytest.mark.parametrize("kind", ["mcp_call", "web_search_call", "code_interpreter_call", "tool_search_call"])
def test_tools_of_the_server_are_no_calls(kind):
    got = assemble(
        [
            {**added(), "item": {"type": kind, "id": "m_1", "name": "f", "arguments": ""}},
            grown('{"q":1}', 0, "m_1"),
            {"type": "response.mcp_call_arguments.delta", "output_index": 0, "item_id": "m_1", "delta": "{}"},
            COMPLETED,
        ]
    )
    assert (got.calls, got.codes) == ((), ())


@pytest.mark.parametrize(
    ("end", "codes"),
    [
        (
            {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}},
            {"finish_length"},
        ),
        (
            {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "content_filter"}}},
            {"finish_content_filter"},
        ),
        ({"type": "response.failed", "response": {"status": "failed", "error": {"code": "x"}}}, {"stream_error"}),
        ({"type": "response.cancelled", "response": {"status": "cancelled"}}, {"stream_error"}),
        ({"type": "error", "message": "overloaded"}, {"stream_error"}),
        (None, {"finish_missing"}),
    ],
)
def test_ends_of_a_response(end, codes):
    got = assemble([added(), grown('{"x":1}'), *([end] if end else [])])
    assert set(got.defects) == codes


def test_arguments_of_an_item_that_never_came():
    got = assemble([added(), grown('{"x":1}'), grown('{"y":', 5, "fc_9"), grown("1}", 5, "fc_9"), COMPLETED])
    assert calls(got) == [A]
    assert (got.dropped_deltas, got.defects) == (2, ("dropped_deltas",))


# --- Anthropic --------------------------------------------------------------------------------------------------------


def start(index=0, id="toolu_a", name="f", input=None, type="tool_use", **more):
    block = {"type": type, "id": id, "name": name, "input": {} if input is None else input, **more}
    return {"type": "content_block_start", "index": index, "content_block": block}


def json_delta(text, index=0):
    return {
        "type": "content_block_delta",
        "index": index,
        "delta": {"type": "input_json_delta", "partial_json": text},
    }


def stop(index=0):
    return {"type": "content_block_stop", "index": index}


TOOL_USE = [{"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, {"type": "message_stop"}]


def test_input_in_the_start_event():
    assert calls(assemble([start(input={"x": 1}), stop(), *TOOL_USE])) == [("toolu_a", "f", {"x": 1})]
    both = assemble([start(input={"x": 1}), json_delta('{"x":'), json_delta("2}"), stop(), *TOOL_USE])
    assert (calls(both), both.codes) == ([("toolu_a", "f", {"x": 2})], ())


def test_a_block_that_never_stops_does_not_run():
    got = assemble([start(), json_delta('{"x":1}'), *TOOL_USE])
    assert got.codes == ("unterminated_block@0",)
    assert got.calls[0].parsed is None


def test_a_start_event_rebinds_its_index():
    got = assemble(
        [
            start(0, "toolu_a"), json_delta('{"x":1}'), stop(),
            start(0, "toolu_b"), json_delta('{"x":2}'), stop(), *TOOL_USE,
        ]
    )  # fmt: skip
    assert calls(got) == [("toolu_a", "f", {"x": 1}), ("toolu_b", "f", {"x": 2})]


def test_a_relay_that_loses_the_index():
    chunks = [
        start(0, "toolu_a"),
        json_delta('{"x":1}'),
        stop(),
        start(1, "toolu_b"),
        json_delta('{"x":2}', 1),
        stop(1),
    ]
    for chunk in chunks:
        del chunk["index"]
    assert calls(assemble([*chunks, *TOOL_USE])) == [("toolu_a", "f", {"x": 1}), ("toolu_b", "f", {"x": 2})]


def test_blocks_that_run_at_the_provider():
    server = [
        [start(index, f"srv_{index}", "web_search", type=kind), json_delta('{"q":1}', index), stop(index)]
        for index, kind in enumerate(["server_tool_use", "mcp_tool_use", "mcp_tool_result", "web_search_tool_result"])
    ]
    got = assemble(
        [
            *(chunk for block in server for chunk in block),
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        ]
    )
    assert (got.calls, got.codes) == ((), ())


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("max_tokens", "finish_length"),
        ("refusal", "finish_content_filter"),
        ("model_context_window_exceeded", "finish_length"),
    ],
)
def test_stop_reasons_that_refuse_the_turn(reason, code):
    end = {"type": "message_delta", "delta": {"stop_reason": reason}}
    assert assemble([start(), json_delta("{}"), stop(), end]).defects == (code,)


def test_a_message_that_was_not_streamed():
    body = {"type": "message", "content": [{"type": "text", "text": ""}, start(input={"x": 1})["content_block"]]}
    got = assemble([{**body, "stop_reason": "tool_use"}])
    assert (calls(got), got.format, got.codes) == ([("toolu_a", "f", {"x": 1})], "anthropic", ())


def test_event_names_stand_in_for_types():
    lines = []
    for event in [start(), json_delta('{"x":1}'), stop(), *TOOL_USE]:
        body = {key: value for key, value in event.items() if key != "type"}
        lines.append(f"event: {event['type']}\ndata: {json.dumps(body)}\n\n")
    assert calls(assemble(lines)) == [("toolu_a", "f", {"x": 1})]


# --- Gemini -----------------------------------------------------------------------------------------------------------


def part(signature=None, **call):
    outer = {"functionCall": call, **({"thoughtSignature": signature} if signature else {})}
    return {"candidates": [{"content": {"parts": [outer]}}]}


def end(reason="STOP"):
    return {"candidates": [{"content": {"parts": []}, "finishReason": reason}]}


def leaf(path, **value):
    return {"jsonPath": path, **value}


def test_signatures_stay_with_their_call():
    got = assemble([part("c2ln", name="f", args={}), part(name="g", args={}), end()])
    assert [call.extra for call in got.calls] == [{"thoughtSignature": "c2ln"}, {}]
    assert [call.arguments for call in got.calls] == ["{}", "{}"]


def test_same_call_twice_is_two_calls():
    got = assemble([part(name="f", args={"x": 1}), part(name="f", args={"x": 1}), end()])
    assert calls(got) == [(None, "f", {"x": 1})] * 2


def test_partial_arguments_of_every_kind():
    got = assemble(
        [
            part(name="f", willContinue=True),
            part(willContinue=True),
            part(partialArgs=[leaf("$.s", stringValue="a", willContinue=True)], willContinue=True),
            part(partialArgs=[leaf("$.s", stringValue="b"), leaf("$.n", numberValue=2.0)], willContinue=True),
            part(partialArgs=[leaf("$.o['k.é'][0]", boolValue=True)], willContinue=True),
            part(partialArgs=[leaf("$.o['k.é'][1]", nullValue=None)], willContinue=True),
            part(partialArgs=[leaf("$.s", stringValue="c"), leaf("$.n", numberValue=3)], willContinue=True),
            part(name="f", partialArgs=[leaf('$["t"]', stringValue="")], willContinue=True),
            part(),
            part(name="g"),
            end(),
        ]
    )
    assert calls(got) == [(None, "f", {"s": "abc", "n": 3, "o": {"k.é": [True, None]}, "t": ""}), (None, "g", {})]
    assert set(got.codes) == {"note:missing_id@0", "note:missing_id@1"}
    assert got.calls[0].arguments.startswith('{"s": "abc", "n": 3,')


def test_parallel_partial_calls_with_ids():
    got = assemble(
        [
            part(id="a", name="f", willContinue=True),
            part(id="b", name="f", willContinue=True),
            part(id="a", partialArgs=[leaf("$.x", numberValue=1)], willContinue=True),
            part(id="b", partialArgs=[leaf("$.x", numberValue=2)], willContinue=True),
            part(id="a"),
            part(id="b"),
            end(),
        ]
    )
    assert calls(got) == [("a", "f", {"x": 1}), ("b", "f", {"x": 2})]
    assert got.codes == ()


def test_a_call_that_never_ends_does_not_run():
    got = assemble([part(name="f", partialArgs=[leaf("$.x", numberValue=1)], willContinue=True), end()])
    assert set(got.codes) == {"unterminated_block@0", "note:missing_id@0"}
    assert got.calls[0].parsed is None


@pytest.mark.parametrize(
    "path",
    [
        "",
        "x",
        "$",
        "$.",
        "$[0]",
        "$.x[-1]",
        "$.x[",
        "$..x",
        "$.x.y",
        "$.x[0]",
        "$.a[99999999999]",
        7,
        None,
        "$" + ".a" * 999,
    ],
)
def test_paths_that_lead_nowhere_are_counted(path):
    got = assemble([part(name="f", partialArgs=[leaf("$.x", numberValue=1), leaf(path, numberValue=2)]), end()])
    assert (got.dropped_deltas, got.defects) == (1, ("dropped_deltas",))


def test_a_list_with_a_gap_lost_something_and_costs_nothing():
    got = assemble([part(name="f", partialArgs=[leaf("$.x[999999999]", numberValue=1)]), end()])
    assert got.calls[0].defects == ("incomplete_arguments",)
    assert got.calls[0].parsed is None


def test_numbers_that_are_none():
    got = assemble([part(name="f", partialArgs=[leaf("$.x", numberValue="NaN")]), end()])
    assert got.calls[0].defects == ("non_finite_number",)


def test_partial_arguments_of_no_call():
    got = assemble([part(partialArgs=[leaf("$.x", numberValue=1)]), part(), end()])
    assert (got.calls, got.dropped_deltas) == ((), 1)


@pytest.mark.parametrize(
    ("chunk", "code"),
    [
        (end("MAX_TOKENS"), "finish_length"),
        (end("SAFETY"), "finish_content_filter"),
        (end("UNEXPECTED_TOOL_CALL"), "malformed_function_call"),
        (end("OTHER"), "stream_error"),
        ({"promptFeedback": {"blockReason": "OTHER"}}, "finish_content_filter"),
        ({"error": {"code": 503}}, "stream_error"),
        (end("FINISH_REASON_UNSPECIFIED"), "finish_missing"),
    ],
)
def test_ends_of_gemini(chunk, code):
    got = assemble([part(name="f", args={"x": 1}), chunk])
    assert got.defects == (code,)
    assert (got.calls[0].parsed is None) == (code == "malformed_function_call")


def test_candidates_do_not_mix():
    two = {
        "candidates": [{"index": 1, **part(name="g")["candidates"][0]}, {"index": 0, **part(name="f")["candidates"][0]}]
    }
    assert [call.name for call in assemble([two, end()]).calls] == ["f"]


def test_names_of_protobuf_and_a_wrapped_answer():
    snake = {
        "candidates": [
            {"content": {"parts": [{"function_call": {"name": "f", "args": {"x": 1}}}]}, "finish_reason": "STOP"}
        ]
    }
    assert calls(assemble([snake])) == calls(assemble([{"response": snake}])) == [(None, "f", {"x": 1})]


def test_interactions_of_the_first_generation():
    got = assemble(
        [
            {"event_type": "interaction.start", "interaction": {"status": "in_progress"}},
            {"event_type": "content.start", "index": 0, "content": {"type": "function_call"}},
            {
                "event_type": "content.delta",
                "index": 0,
                "delta": {"type": "function_call", "id": "a", "name": "f", "arguments": {"x": 1}},
            },
            {"event_type": "content.stop", "index": 0},
            {"event_type": "interaction.complete", "interaction": {"status": "requires_action"}},
        ]
    )
    assert (calls(got), got.codes) == ([("a", "f", {"x": 1})], ())


def test_an_interaction_shown_only_at_its_end():
    step = {"type": "function_call", "id": "a", "name": "f", "arguments": {"x": 1}}
    whole = {"event_type": "interaction.completed", "interaction": {"status": "requires_action", "steps": [step]}}
    streamed = [
        {"event_type": "step.start", "index": 0, "step": {**step, "arguments": {}}},
        {"event_type": "step.delta", "index": 0, "delta": {"type": "arguments_delta", "arguments": '{"x":1}'}},
        {"event_type": "step.stop", "index": 0},
    ]
    for chunks in ([whole], [*streamed, whole]):
        got = assemble(chunks)
        assert (calls(got), got.codes) == ([("a", "f", {"x": 1})], ())
    for status, codes in [
        ("failed", ("stream_error",)),
        ("cancelled", ("stream_error",)),
        ("incomplete", ("finish_length",)),
        ("budget_exceeded", ("finish_length",)),
        ("queued", ("finish_missing",)),
    ]:
        last = {"event_type": "interaction.status_update", "status": status}
        assert assemble([*streamed, last]).defects == codes


# --- Bedrock, Cohere, Ollama ------------------------------------------------------------------------------------------


def use(index=0, id="tooluse_a", **more):
    return {
        "contentBlockStart": {"contentBlockIndex": index, "start": {"toolUse": {"toolUseId": id, "name": "f", **more}}}
    }


def inputs(text, index=0):
    return {"contentBlockDelta": {"contentBlockIndex": index, "delta": {"toolUse": {"input": text}}}}


def test_bedrock():
    stopped, ended = {"contentBlockStop": {"contentBlockIndex": 0}}, {"messageStop": {"stopReason": "tool_use"}}
    got = assemble([use(), inputs('{"x":'), inputs("1}"), stopped, ended])
    assert (calls(got), got.codes) == ([("tooluse_a", "f", {"x": 1})], ())
    assert assemble([use(), inputs("{}"), ended]).codes == ("unterminated_block@0",)
    assert (
        assemble(
            [use(type="server_tool_use"), inputs("{}"), stopped, {"messageStop": {"stopReason": "end_turn"}}]
        ).calls
        == ()
    )
    assert assemble([use(), inputs("{}", 3), stopped, ended]).dropped_deltas == 1
    assert assemble([use(), inputs("{}"), stopped, {"throttlingException": {"message": "slow"}}]).defects == (
        "stream_error",
    )
    assert assemble([{"messageStop": {"stopReason": "guardrail_intervened"}}]).defects == ("finish_content_filter",)


def test_a_converse_answer_that_was_not_streamed():
    content = [{"text": ""}, {"toolUse": {"toolUseId": "tooluse_a", "name": "f", "input": {"x": 1}}}]
    got = assemble([{"output": {"message": {"content": content}}, "stopReason": "tool_use"}])
    assert (calls(got), got.codes) == ([("tooluse_a", "f", {"x": 1})], ())


def test_bedrock_events_over_http():
    lines = []
    for event in [
        use(),
        inputs('{"x":1}'),
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {"messageStop": {"stopReason": "tool_use"}},
    ]:
        [(name, body)] = event.items()
        lines.append(f"event: {name}\ndata: {json.dumps(body)}\n\n")
    assert calls(assemble(lines)) == [("tooluse_a", "f", {"x": 1})]


def cohere(kind, index=0, id=None, name=None, arguments=None):
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    call = {"function": function, **({"id": id} if id else {})}
    return {"type": kind, "index": index, "delta": {"message": {"tool_calls": call}}}


def test_cohere():
    start, grow = cohere("tool-call-start", 0, "f_1", "f", ""), cohere("tool-call-delta", 0, None, None, '{"x":1}')
    stopped, ended = (
        {"type": "tool-call-end", "index": 0},
        {"type": "message-end", "delta": {"finish_reason": "TOOL_CALL"}},
    )
    assert assemble([start, grow, stopped, ended]).codes == ()
    assert assemble([start, grow, ended]).codes == ("unterminated_block@0",)
    assert assemble([start, grow, stopped, {"type": "message-end", "delta": {"finish_reason": "ERROR"}}]).defects == (
        "stream_error",
    )
    assert assemble([start, cohere("tool-call-delta", 4, None, None, "{}"), stopped, ended]).dropped_deltas == 1
    assert assemble([ended]).defects == ("finish_tool_calls_without_calls",)
    whole = {"id": "1", "message": {"tool_calls": [{"id": "f_1", "function": {"name": "f", "arguments": '{"x":1}'}}]}}
    got = assemble([{**whole, "finish_reason": "TOOL_CALL"}])
    assert (calls(got), got.format) == ([("f_1", "f", {"x": 1})], "cohere")


def test_ollama():
    def chunk(*made, **more):
        return {"model": "m", "message": {"role": "assistant", "tool_calls": list(made)}, "done": False, **more}

    one, two = ({"function": {"name": "f", "arguments": {"x": n}}} for n in (1, 2))
    ended = {"model": "m", "done": True, "done_reason": "stop"}
    got = assemble([chunk(one, two), chunk(one), ended])
    assert [call.parsed for call in got.calls] == [{"x": 1}, {"x": 2}, {"x": 1}]
    assert {code.partition("@")[0] for code in got.codes} == {"note:missing_id"}
    assert calls(assemble([chunk({"id": "a", "function": {"name": "f", "arguments": '{"x":1}'}}), ended])) == [
        ("a", "f", {"x": 1})
    ]
    assert assemble([chunk(one), {**ended, "done_reason": "length"}]).defects == ("finish_length",)
    assert assemble([chunk(one), {"error": "out of memory"}]).defects == ("stream_error",)
    assert assemble([chunk(one)]).defects == ("finish_missing",)
    assert assemble([chunk(one, "junk"), ended]).dropped_deltas == 1


# --- which format -----------------------------------------------------------------------------------------------------


def test_what_shows_no_format():
    got = assemble([{"type": "ping"}, {"x": 1}, {"type": "error", "error": {"type": "overloaded_error"}}])
    assert (got.format, got.defects) == (None, ("stream_error",))
    assert assemble([{"hello": "world"}]).defects == ("finish_missing",)


def test_an_error_event_in_any_format():
    chunk = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    for fed in ([chunk], []):
        text = (
            "".join(f"data: {json.dumps(one)}\n\n" for one in fed) + 'event: error\ndata: {"message": "overloaded"}\n\n'
        )
        assert assemble([text]).defects == ("stream_error",)


def test_the_name_of_an_event_is_no_format():
    chunks = [part(name="f", args={"x": 1}), end()]
    got = assemble([f"event: chunk\ndata: {json.dumps(chunk)}\n\n" for chunk in chunks])
    assert (got.format, calls(got)) == ("gemini", [(None, "f", {"x": 1})])


def test_an_answer_of_a_server_that_did_not_stream():
    message = {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": '{"x":1}'}}]}
    body = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    for fed in ([body], [json.dumps(body, indent=2)]):
        for strict in (False, True):
            assert calls(assemble(fed, strict=strict)) == [("a", "f", {"x": 1})]


def test_events_that_an_http_client_split_off():
    from types import SimpleNamespace

    events = [start(), json_delta('{"x":1}'), stop(), *TOOL_USE]
    made = [SimpleNamespace(event=event["type"], data=json.dumps(event), id="", retry=None) for event in events]
    assert calls(assemble([*made, SimpleNamespace(event="", data="[DONE]")])) == [("toolu_a", "f", {"x": 1})]
    assert assemble([*made, SimpleNamespace(event="", data="{broken")]).dropped_deltas == 1


def test_an_sdk_that_repeats_itself():
    from types import SimpleNamespace

    again = SimpleNamespace(type="input_json", partial_json='{"x":1}', snapshot={"x": 1})
    assert calls(assemble([start(), json_delta('{"x":1}'), again, stop(), *TOOL_USE])) == [("toolu_a", "f", {"x": 1})]
    chunk = {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f"}}]}}]}
    helper = [SimpleNamespace(type="chunk", chunk=chunk), SimpleNamespace(type="tool_calls.function.arguments.delta")]
    assert calls(assemble(helper)) == [("a", "f", {})]


def test_strict_explains_too():
    chunk = {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f"}}]}}]}
    [step] = assemble([chunk], strict=True, explain=True).steps
    assert (step.chunk, step.call, step.why) == (0, 0, "its index")
