"""`stan completion`: the script that makes a shell complete commands, options, contexts and channels."""

from typing import Annotated, Final

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined] # public in the text, not in the module

from stan.cli.support.common import EXIT_USAGE, fail
from stan.cli.support.terminal import write

SHELLS: Final = ("bash", "zsh", "fish")
HELP: Final = """For this shell: eval "$(stan completion bash)", the same with zsh; stan completion fish | source."""


def completion(
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help=HELP, autocompletion=lambda: list(SHELLS))],
) -> None:
    """Print the completion script of a shell; its rc file is the place to keep it.

    bash: stan completion bash > ~/.local/share/bash-completion/completions/stan

    zsh: stan completion zsh > a file _stan in a directory of $fpath

    fish: stan completion fish > ~/.config/fish/completions/stan.fish
    """
    if shell not in SHELLS:
        fail(f"{shell!r} is no shell that is known here; there are {', '.join(SHELLS)}.", EXIT_USAGE)
    write([get_completion_script(prog_name="stan", complete_var="_STAN_COMPLETE", shell=shell)])
