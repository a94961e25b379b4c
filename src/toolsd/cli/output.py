"""Everything that is printed: text for people, JSON for programs. The only module that imports rich.

Results go to stdout, everything else to stderr. Colour and line drawing only on a terminal, and not with NO_COLOR.
Text that comes from tools and models is shown with its control characters made visible.
"""

from __future__ import annotations

import base64
import json as json_module
import os
import re
import sys
import textwrap
import traceback
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from toolsd.errors import ConfigError, Failure, ToolsdError, TurnFailed

if TYPE_CHECKING:
    from rich.console import Console

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Without a terminal there is no width to fit into: nothing is cut or folded.
_PLAIN_WIDTH = 10_000


def prepare_streams() -> None:
    """Let no character that the terminal cannot show, and no stream that was closed, end in an error."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # open as long as the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # as above
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def abandon_stdout() -> None:
    """Let what is still buffered go nowhere; otherwise the interpreter fails over it once more at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def printable(text: str) -> str:
    """`text` with its control characters (except tab and newline) made visible: output cannot steer the terminal."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text.replace("\r\n", "\n"))


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def say(text: str = "", *, flush: bool = False) -> None:
    """One piece of text to stdout. `flush` where somebody waits for it."""
    print(printable(text), flush=flush)


def note(text: str) -> None:
    """One line to stderr that is not a complaint."""
    print(printable(text), file=sys.stderr, flush=True)


def styled(*parts: str | tuple[str, str], to: TextIO | None = None) -> None:
    """One line of plain texts and (text, style) pairs."""
    from rich.text import Text

    line = Text.assemble(*(printable(p) if isinstance(p, str) else (printable(p[0]), p[1]) for p in parts))
    _console(to or sys.stdout).print(line, soft_wrap=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table of texts. A column whose name ends in `>` is flush right."""
    from rich.table import Table
    from rich.text import Text

    console = _console(sys.stdout)
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        grid.add_column(column.rstrip(">"), justify="right" if column.endswith(">") else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(printable(cell)) for cell in row))
    # rich pads every line to the width of the table; nobody wants those blanks in a file.
    with console.capture() as captured:
        console.print(grid)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def json(value: Any, *, flush: bool = False) -> None:
    """One JSON document: indented on a terminal, else one line. `flush` where somebody waits for it."""
    text = json_module.dumps(
        value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None, default=_plain, allow_nan=False
    )
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate has no UTF-8, but it has an escape
        text = json_module.dumps(value, indent=2 if sys.stdout.isatty() else None, default=_plain, allow_nan=False)
    print(text, flush=flush)


def complain(message: str, hint: str | None = None) -> None:
    """`toolsd: what is wrong`, and what to do about it, to stderr."""
    styled(("toolsd: ", "bold red"), message, to=sys.stderr)
    if hint:
        styled(("  hint: ", "bold"), hint, to=sys.stderr)


def failed(error: ToolsdError, *, json: bool) -> None:
    """An error of toolsd's own hierarchy."""
    if json:
        _json_error({"code": error.code, "message": error.message, "hint": error.hint, **_failure_json(error)})
    if isinstance(error, TurnFailed):
        _turn_failed(error.failure)
    elif isinstance(error, ConfigError) and "\n" in error.message:
        complain(f"the configuration has mistakes:\n{error.message}", error.hint)
    else:
        complain(error.message, error.hint)


def _turn_failed(failure: Failure) -> None:
    complain(f"turn failed ({failure.code}): {failure.message}")
    evidence = failure.evidence
    if failure.cause:
        note(f"  cause: {failure.cause}")
    if evidence is not None:
        facts = {
            "pid": evidence.pid,
            "exit code": evidence.exit_code,
            "signal": evidence.signal,
            "out of memory": evidence.oom,
            "ran": evidence.running,
            "after": None if evidence.elapsed is None else f"{evidence.elapsed:.3f} s",
            "limit": None if evidence.limit is None else f"{evidence.limit:g} s",
            "peak memory": None if evidence.peak_rss is None else f"{evidence.peak_rss / 1024**2:.1f} MiB",
        }
        seen = ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)
        if seen:
            note(f"  seen: {seen}")
        for name, text in (
            ("last lines of stderr", evidence.stderr_tail),
            ("stacks", evidence.stacks),
            ("traceback", evidence.traceback),
        ):
            if text:
                note(f"  {name}:\n" + textwrap.indent(text.rstrip(), "    "))
    if failure.ledger:
        note("  what is known of each call:")
        for entry in failure.ledger:
            note(f"    {entry.index}  {entry.tool}  {entry.state}")
        note(f"  safe to send again: {_AGAIN[failure.retry]}")


_AGAIN = {
    "safe": "yes, nothing ran",
    "idempotent_only": "only if running a call twice does no harm",
    "never": "no, the same would happen",
}


def failed_usage(message: str, command: str, *, json: bool) -> None:
    """A command line that cannot be understood."""
    if json:
        _json_error({"code": "usage", "message": message, "hint": None})
    complain(message, f"{command} --help")


def bug(error: BaseException, *, json: bool, whole: bool) -> None:
    """An exception that should not have come this far."""
    message = f"this is a bug in toolsd: {type(error).__name__}: {error}"
    if json:
        _json_error({"code": "internal_error", "message": message, "hint": None})
    if whole:
        print("".join(traceback.format_exception(error)), file=sys.stderr, end="")
    complain(message, None if whole else "run it again with -v for the traceback, and please report it")


def _json_error(fields: dict[str, Any]) -> None:
    json({"ok": False, "error": fields})


def _failure_json(error: ToolsdError) -> dict[str, Any]:
    """What a failed turn has beside code and message: every key is there, null where nothing was seen."""
    if not isinstance(error, TurnFailed):
        return {}
    failure, evidence = error.failure, error.failure.evidence
    return {
        "source": failure.source,
        "cause": failure.cause,
        "retry": failure.retry,
        "retry_after": failure.retry_after,
        "evidence": None
        if evidence is None
        else {name: getattr(evidence, name) for name in evidence.__struct_fields__},
        "ledger": list(failure.ledger),
    }


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    terminal = stream.isatty()
    return Console(
        file=stream,
        width=None if terminal else _PLAIN_WIDTH,
        color_system="auto" if terminal and not os.environ.get("NO_COLOR") else None,
        markup=False,
        highlight=False,
        emoji=False,
    )


def _plain(value: Any) -> Any:
    """What JSON has no form for: bytes as base64, structs as objects."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    import msgspec

    return msgspec.to_builtins(value)
