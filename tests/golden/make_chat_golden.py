#!/usr/bin/env python3
"""Writes tests/golden/chat/prompts.json: what jinja2 makes of our own chat templates.

    tests/golden/make_chat_golden.py

The templates in chat/templates are written here, in the style of the families of models. Each renders
every conversation of chat_conversations.py; null stands for one that it refuses. Needs transformers
and jinja2 (tools/requirements.txt).
"""

import json
from pathlib import Path

import jinja2
import transformers

from chat_conversations import CONVERSATIONS, SPECIAL_TOKENS
from jinja2_environment import NOW, render

FOLDER = Path(__file__).resolve().parent / "chat"


def main() -> None:
    prompts = {}
    for path in sorted((FOLDER / "templates").glob("*.jinja")):
        template = path.read_text(encoding="utf-8")
        prompts[path.name] = {
            name: render(template, {**SPECIAL_TOKENS, **variables}).get("text")
            for name, variables in CONVERSATIONS.items()}
    golden = {"versions": {"jinja2": jinja2.__version__, "transformers": transformers.__version__},
              "now": NOW, "special_tokens": SPECIAL_TOKENS, "conversations": CONVERSATIONS,
              "prompts": prompts}
    (FOLDER / "prompts.json").write_text(
        json.dumps(golden, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    for name, texts in prompts.items():
        print(f"{name}: {sum(text is not None for text in texts.values())} of {len(texts)} rendered")


if __name__ == "__main__":
    main()
