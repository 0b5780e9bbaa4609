"""jinja2 as transformers sets it up for chat templates, and our own rendering beside it."""

import datetime
import functools
import json
import subprocess
from unittest import mock

import transformers.utils.chat_template_utils as hf

NOW = 1767323045  # 2026-01-02 03:04:05 UTC


class _Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None)


@functools.cache
def _environment():
    """That of transformers, which it makes anew for each template."""
    return hf._compile_jinja_template("").environment


def render(template: str, variables: dict) -> dict:
    """{"text": ...} or {"error": ...}."""
    with mock.patch.object(hf, "datetime", _Clock):
        try:
            return {"text": _environment().from_string(template).render(**variables)}
        except Exception as error:  # whatever a template does to Python
            return {"error": f"{type(error).__name__}: {error}"}


class Ours:
    """The program jinja_lines (cmake --build ... --target jinja_lines)."""

    def __init__(self, program: str):
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, template: str, variables: dict) -> dict:
        line = json.dumps({"template": template, "variables": variables, "now": NOW})
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"jinja_lines ended at this template:\n{template}\n{variables}")
        return json.loads(answer)
