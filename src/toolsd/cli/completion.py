"""`toolsd completion`: the script that makes a shell complete verbs and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from toolsd.cli import output


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print a completion script for SHELL.

    For bash, add to ~/.bashrc: eval "$(toolsd completion bash)"; for zsh, the same with zsh in ~/.zshrc; for fish,
    toolsd completion fish > ~/.config/fish/completions/toolsd.fish
    """
    made = get_completion_class(shell)
    assert made is not None
    output.say(made(context.find_root().command, {}, "toolsd", "_TOOLSD_COMPLETE").source())
