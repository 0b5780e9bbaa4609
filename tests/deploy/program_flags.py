"""The flags that the built program has, and those that deploy/ gives ahead of it."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "packaging"))

import help_text  # noqa: E402

COMMANDS = ("worker", "router")


def known_flags(tandem):
    """Command -> all flags that it takes."""
    commands = {" ".join(command.path): command for command in help_text.read_all(tandem)}
    of_all = {name for entry in commands[""].options() for name in entry.names}
    return {name: {flag for entry in commands[name].options() for flag in entry.names} | of_all
            for name in COMMANDS}
