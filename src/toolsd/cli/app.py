"""The command `toolsd`: global options, verbs loaded when asked for, and one way out for every error."""

from __future__ import annotations

import difflib
import importlib
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn, TypeVar

import click
from click.exceptions import NoArgsIsHelpError

from toolsd.cli import output
from toolsd.errors import EXIT_FAILED, EXIT_INTERNAL, EXIT_USAGE, ToolsdError

# What `toolsd --help` lists, in the order people meet it; each is a module of this package with a `command`.
VERBS = {
    "check": "Check a configuration and its sources.",
    "serve": "Run the daemon.",
    "ps": "Show sources, workers and turns of the daemon.",
    "tools": "List the tools of all sources.",
    "call": "Run one tool.",
    "turn": "Play a recorded completion stream and run its calls.",
    "assemble": "Show the calls in a recorded stream; run nothing.",
    "reload": "Have the daemon read its configuration again.",
    "sandbox": "Show what confines a source, and what this machine can do.",
    "stop": "Stop the daemon.",
    "include": "Print the folder of the header for native sources.",
    "completion": "Print a shell completion script.",
}

EXIT_INTERRUPTED, EXIT_PIPE, EXIT_TERMINATED = 130, 141, 143


F = TypeVar("F", bound=Callable[..., Any])


class Settings:
    """The global options: given before or after the verb, the last one wins."""

    def __init__(self) -> None:
        self.config: str | None = None
        self.socket: str | None = None
        self.verbosity = 0
        self.json = False


def settings() -> Settings:
    """The global options of the command line that is being run."""
    found = click.get_current_context().find_object(Settings)
    assert found is not None
    return found


def _keep(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(context: click.Context, _parameter: click.Parameter, value: Any) -> None:
        if value not in (None, False, 0):
            setattr(context.ensure_object(Settings), name, value)

    return callback


def _quieter(context: click.Context, _parameter: click.Parameter, value: int) -> None:
    if value:
        context.ensure_object(Settings).verbosity = -value


def global_options(command: F) -> F:
    """Options that every verb takes, so that they may stand on either side of it."""
    for option in (
        click.option("-q", "--quiet", count=True, expose_value=False, callback=_quieter, help="Log less."),
        click.option("-v", "--verbose", count=True, expose_value=False, callback=_keep("verbosity"), help="Log more."),
        click.option(
            "--socket",
            metavar="PATH",
            type=click.Path(),
            expose_value=False,
            callback=_keep("socket"),
            help="The daemon's socket.",
        ),
        click.option(
            "-c",
            "--config",
            metavar="FILE",
            type=click.Path(),
            expose_value=False,
            callback=_keep("config"),
            help="The toolsd.toml to use.",
        ),
    ):
        command = option(command)
    return command


def json_option(command: F) -> F:
    """`--json`, for verbs that print something to read."""
    return click.option(
        "--json", "json_wanted", is_flag=True, expose_value=False, callback=_keep("json"), help="Print JSON."
    )(command)


def seconds(text: str) -> float:
    """The type of options that take a duration, written as in the configuration (`30s`)."""
    from toolsd.config import units

    try:
        return units.positive_duration(text)
    except units.Unfit as unfit:
        raise click.BadParameter(f"{unfit}; {unfit.hint}" if unfit.hint else str(unfit)) from unfit


class ReaderLeft(Exception):
    """Whoever read our output has closed it."""


class Verbs(click.Group):
    """The group of verbs; imports a verb's module only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command = importlib.import_module(f"toolsd.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in VERBS and not name.startswith("-") and not ctx.resilient_parsing:
            near = difflib.get_close_matches(name, VERBS, n=1)
            ctx.fail(
                f"there is no verb {name!r}; "
                + (f"did you mean {near[0]!r}?" if near else f"there are {', '.join(VERBS)}")
            )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        # click answers a broken pipe with status 1, which here means that a tool failed.
        try:
            status = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise ReaderLeft from error
        return status

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


def _version(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        from toolsd import __version__

        click.echo(f"toolsd {__version__}")
        context.exit()


@click.group(
    cls=Verbs,
    subcommand_metavar="VERB ...",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@global_options
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
@click.pass_context
def toolsd(context: click.Context) -> None:
    """Run a model's tool calls: one batch per source, each source in its own worker process.

    The configuration is ./toolsd.toml, then the one in your configuration directory.
    """
    context.ensure_object(Settings)


def run(arguments: list[str]) -> int:
    """Run one command line; returns the exit status and never lets an exception through."""
    output.prepare_streams()
    options = Settings()
    previous = signal.signal(signal.SIGTERM, _terminated)
    try:
        return _run(arguments, options)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else EXIT_INTERNAL
    finally:
        signal.signal(signal.SIGTERM, previous)


def _run(arguments: list[str], options: Settings) -> int:
    try:
        status = toolsd.main(args=arguments, prog_name="toolsd", standalone_mode=False, obj=options)
    except ReaderLeft:
        output.abandon_stdout()
        return EXIT_PIPE
    except (KeyboardInterrupt, click.Abort):
        output.complain("interrupted")
        return EXIT_INTERRUPTED
    except NoArgsIsHelpError as error:
        output.note(error.format_message())
        return EXIT_USAGE
    except click.ClickException as error:
        _usage(error, options)
        return EXIT_USAGE
    except ToolsdError as error:
        output.failed(error, json=options.json)
        return error.exit_status
    except OSError as error:
        output.abandon_stdout()  # it may be what failed: the disk is full
        output.complain(f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error))
        return EXIT_FAILED
    except Exception as error:  # noqa: BLE001  # the last line of defence: a bug ends in one line, too
        output.bug(error, json=options.json, whole=options.verbosity > 0)
        return EXIT_INTERNAL
    return status if isinstance(status, int) else 0


def _usage(error: click.ClickException, options: Settings) -> None:
    context = getattr(error, "ctx", None)
    output.failed_usage(
        " ".join(error.format_message().split()),
        context.command_path if context is not None else "toolsd",
        json=options.json,
    )


def _terminated(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(EXIT_TERMINATED)
