#!/usr/bin/env python3
"""Compares all chat templates of a folder (*.jinja) with jinja2, byte for byte.

    tests/golden/compare_templates.py FOLDER [--program build/release/bin/jinja_lines]

Every template renders every conversation of chat_conversations.py. Both must give the same text, or
both must fail. Needs transformers and jinja2 (tools/requirements.txt).
"""

import argparse
import sys
from pathlib import Path

from chat_conversations import CONVERSATIONS, SPECIAL_TOKENS
from jinja2_environment import Ours, render


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--program", default="build/release/bin/jinja_lines")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    ours = Ours(arguments.program)
    files = sorted(arguments.folder.rglob("*.jinja"))
    equal = both_fail = steps = 0
    different = {}
    for path in files:
        template = path.read_text(encoding="utf-8")
        for name, variables in CONVERSATIONS.items():
            variables = {**SPECIAL_TOKENS, **variables}
            want, got = render(template, variables), ours.render(template, variables)
            steps = max(steps, got.get("steps", 0))
            if "text" in want and want["text"] == got.get("text"):
                equal += 1
            elif "error" in want and "error" in got:
                both_fail += 1
            else:
                different.setdefault(path.name, []).append((name, want, got))
    for path, cases in different.items():
        name, want, got = cases[0]
        print(f"{path}: {len(cases)} differ, the first is {name}")
        if arguments.verbose:
            print(f"  jinja2: {str(want)[:600]}\n  ours:   {str(got)[:600]}")
    total = len(files) * len(CONVERSATIONS)
    print(f"{len(files)} templates x {len(CONVERSATIONS)} conversations = {total}: "
          f"{equal} equal, {both_fail} refused by both, {total - equal - both_fail} different; at most {steps} steps")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
