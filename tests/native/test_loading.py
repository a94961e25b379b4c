"""Libraries that cannot be used: each is refused with what to do about it."""

from __future__ import annotations

from pathlib import Path

import pytest

import toolsd

from .conftest import Build, Serve

SOURCE = """
#include "toolsd_source.h"
#include <stdio.h>
#include <stdlib.h>
@tools@
static int32_t invoke(void *state, const toolsd_context *context, const toolsd_call *calls, toolsd_result *results,
                      size_t n, const toolsd_allocator *allocator) {
    (void)state, (void)context, (void)calls;
    for (size_t i = 0; i < n; i++)
        toolsd_ok_text(&results[i], allocator, "fine");
    return 0;
}
static toolsd_source source = {TOOLSD_ABI, 0, "tried", tools, 1, NULL, invoke, NULL};
TOOLSD_EXPORT const toolsd_source *toolsd_source_entry(const toolsd_host *host) {
    (void)host;
    @entry@
    return &source;
}
"""
TOOLS = 'static const toolsd_tool tools[] = {{"tried", "A tool.", @parameters@, 0}};'


def source(entry: str = "", parameters: str = "NULL", tools: str = TOOLS) -> str:
    return SOURCE.replace("@tools@", tools).replace("@parameters@", parameters).replace("@entry@", entry)


def refused(serve: Serve, library: Path, table: str = "") -> str:
    with pytest.raises(toolsd.ConfigError) as failed:
        serve(library, f"required = true\n{table}")
    return str(failed.value)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ('return host->fail(host, "no licence found"), NULL;', "no licence found"),
        ("return NULL;", "did not say why"),
        ("source.abi = 2;", "ABI 2 of toolsd_source.h, this toolsd speaks ABI 1: build it again"),
        ("source.invoke_batch = NULL;", "has no invoke_batch"),
        ("source.tool_count = 0;", "declares 0 tools"),
        ("source.tool_count = 1u << 31;", "declares 2147483648 tools"),
    ],
)
def test_a_source_that_is_none(build: Build, serve: Serve, entry: str, said: str) -> None:
    assert said in refused(serve, build(source(entry)))


@pytest.mark.parametrize(
    ("parameters", "said"),
    [('"{"', "are no JSON"), ('"[]"', '"type": "object"'), ('"{\\"type\\":\\"string\\"}"', '"type": "object"')],
)
def test_parameters_that_are_none(build: Build, serve: Serve, parameters: str, said: str) -> None:
    assert said in refused(serve, build(source(parameters=parameters)))


def test_a_death_while_loading(build: Build, serve: Serve) -> None:
    assert "SIGABRT" in refused(serve, build(source('fprintf(stderr, "no such device\\n"); abort();')))


def test_no_source_in_it(build: Build, serve: Serve) -> None:
    said = refused(serve, build("int answer(void); int answer(void) { return 42; }"))
    assert "does not export toolsd_source_entry" in said and "toolsd include" in said


def test_a_symbol_that_nobody_defines(build: Build, serve: Serve) -> None:
    said = refused(serve, build(source("extern void missing_part(void); missing_part();")))
    assert "undefined symbol: missing_part" in said and "link it with" in said


def test_a_library_it_needs_that_is_not_there(build: Build, serve: Serve, tmp_path: Path) -> None:
    needed = tmp_path / "libneeded.so"
    needed.write_bytes(build("void part(void); void part(void) {}").read_bytes())
    library = build(source("extern void part(void); part();"), f"-L{tmp_path}", "-Wl,--no-as-needed", "-l:libneeded.so")
    said = refused(serve, library)
    assert "libneeded.so" in said and "permissions.read" in said


def test_what_is_no_library(serve: Serve, tmp_path: Path) -> None:
    text = tmp_path / "text.so"
    text.write_text("this is not code, however long the text may be; " * 10)
    assert "it is no shared library" in refused(serve, text)
    empty = tmp_path / "empty.so"
    empty.write_bytes(b"")
    assert "it is no shared library" in refused(serve, empty)
    assert "does not exist" in refused(serve, tmp_path / "gone.so")


def test_a_library_of_another_machine(build: Build, serve: Serve, tmp_path: Path) -> None:
    code = bytearray(build(source()).read_bytes())
    code[18:20] = (243).to_bytes(2, "little")  # e_machine: RISC-V (elf(5))
    foreign = tmp_path / "foreign.so"
    foreign.write_bytes(code)
    assert "built for another machine" in refused(serve, foreign)


def test_settings_of_a_tool_that_is_not_there(build: Build, serve: Serve) -> None:
    said = refused(serve, build(source()), "[source.native.tool.gone]\nidempotent = true")
    assert "settings for gone; the source has: tried" in said


def test_settings_lie_over_what_is_declared(build: Build, serve: Serve) -> None:
    (tool,) = serve(build(source()), "[source.native.tool.tried]\nidempotent = true").tools()
    assert tool.idempotent
