"""`jetspark completion`: prints a shell's completion script."""

from __future__ import annotations

from typing import Literal

from jetspark.cli import console


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a script that completes commands and options in a shell.

    For bash, put source <(jetspark completion bash) into ~/.bashrc; for zsh, write the script to
    _jetspark in a folder of $fpath; for fish, to ~/.config/fish/completions/jetspark.fish.

    Args:
        shell: bash, zsh or fish.
    """
    from jetspark.cli.app import make_app

    console.out.file.write(make_app().generate_completion(shell=shell))
