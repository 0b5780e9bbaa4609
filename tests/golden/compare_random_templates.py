#!/usr/bin/env python3
"""Compares random Jinja with jinja2 in the environment of transformers.

    tests/golden/compare_random_templates.py [--count 10000] [--seed 1] [--jobs 2]
        [--program build/release/bin/jinja_lines]

Four of five templates are made of the statements, filters, tests and methods that chat templates use, put
together at random; the fifth has the form of a chat template and renders a random conversation. Both
must give the same text, or both must fail; what this build refuses by name is counted apart. Needs
transformers and jinja2 (tests/golden/template_requirements.txt).
"""

import argparse
import random
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from chat_conversations import CONVERSATIONS, SPECIAL_TOKENS
from jinja2_environment import Ours, render

VARIABLES = {
    "messages": [
        {"role": "system", "content": "  Be brief.\n"},
        {"role": "user", "content": "Größe, ﬁn & <b>\"q\" 'r'</b>\n\tzwei"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "function": {"name": "f", "arguments": {"a": 1, "b": [1.5, None, "x"]}}}]},
        {"role": "tool", "content": "", "name": "f"},
        {"role": "user", "content": "日本　語 ABC abc"}],
    "n": 3, "z": 0, "neg": -7, "f": 2.5, "big": 1e17, "t": True, "no": None,
    "s": "Hello, World", "w": "  a b,c  ", "e": "", "u": "ΑΒΓσς ñ",
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "m": [1, "a", None, [2], {"k": 1}, True, 1.0],
    "d": {"b": 1, "a": "x", "items": 5, "n": None}, "dd": {"x": {"y": [1, 2]}, "é": "ü"},
    "el": [], "ed": {}, "rows": [{"n": 2, "s": "b"}, {"n": 1, "s": "a"}, {"n": 2}],
}
TYPED = {
    "text": ["s", "w", "e", "u", "messages[1].content", "'lit'", "\"d'q\\n\"", "messages[0].role"],
    "number": ["n", "z", "neg", "f", "1", "2", "-3", "0.5", "10", "l|length"],
    "list": ["l", "ls", "m", "el", "[1, 2, 3]", "['x', 'y']", "messages", "rows", "range(4)",
             "(1, 2)", "s.split()", "l[1:]"],
    "dict": ["d", "dd", "ed", "{'p': 1, 'q': [2]}", "messages[1]", "messages[2]"],
    "other": ["t", "no", "missing", "false", "none", "ns.a", "d.zzz", "big", "big * 10"],
}
TEXT_METHODS = [
    "strip()", "lstrip()", "rstrip()", "strip(' aH')", "upper()", "lower()", "title()", "capitalize()",
    "split()", "split(',')", "split(' ', 1)", "rsplit(' ', 1)", "split('l')", "splitlines()",
    "startswith('H')", "endswith(('d', ' '))", "replace('l', 'L')", "replace('', '-')",
    "replace('l', '', 1)", "find('l')", "rfind('l')", "count('l')", "isdigit()", "isalpha()",
    "isspace()", "isupper()", "islower()", "join(['a', 'b'])", "zfill(14)", "ljust(14)", "center(15, '*')",
    "removeprefix('He')", "partition(',')", "rpartition(' ')", "swapcase()", "isalnum()"]
FILTERS = {
    "text": ["upper", "lower", "trim", "title", "capitalize", "length", "replace('l', 'x')", "first", "last",
             "list", "reverse", "indent", "indent(2, true)", "int", "float", "string", "tojson",
             "wordcount", "truncate(9)", "truncate(8, true, '', 0)", "center(14)", "trim('H ')", "default('z', true)",
             "join('-')", "int(7)", "format(1)"],
    "number": ["abs", "int", "float", "round", "round(1)", "string", "tojson", "default(5)",
               "round(1, 'floor')", "round(0, 'ceil')"],
    "list": ["length", "first", "last", "join(', ')", "list", "sort", "sort(reverse=true)", "unique | list",
             "reverse | list", "map('string') | list", "map('upper') | list", "select | list",
             "reject('none') | list", "select('string') | list", "select('number') | list", "sum", "min", "max",
             "tojson", "tojson(indent=2)", "batch(2) | list", "slice(2) | list", "batch(2, 'f') | map('join', '+') | list",
             "map(attribute='role') | list", "map(attribute='n', default=0) | list",
             "selectattr('role', 'equalto', 'user') | list", "rejectattr('s') | list",
             "selectattr('content', 'string') | map(attribute='content') | join('|')",
             "groupby('n', default=9) | list", "sort(attribute='n') | list", "string", "count",
             "select('in', [1, 2, 'a']) | list", "unique | join", "map('tojson') | join(' ')", "dictsort"],
    "dict": ["items | list", "dictsort", "length", "list", "tojson", "tojson(indent=1, sort_keys=true)", "first",
             "last", "string", "dictsort(by='value')", "dictsort(reverse=true)", "count", "join('/')", "map('upper') | list",
             "tojson(separators=(',', ':'))", "tojson(ensure_ascii=true)"],
    "other": ["default('z')", "default('z', true)", "string", "tojson", "int", "float", "list", "length", "d(1)"],
}
TESTS = ["defined", "undefined", "none", "string", "number", "mapping", "iterable", "sequence", "boolean",
         "true", "false", "integer", "float", "odd", "even", "divisibleby(2)", "in [1, 'a', none]", "eq(3)", "lower",
         "upper", "callable", "sameas(none)", "ne 3", "not none", "not defined", "gt(1)", "not in ls"]


class Maker:
    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def pick(self, options):
        return self.random.choice(options)

    def simple(self, kind=None) -> str:
        kind = kind or self.pick(list(TYPED))
        return self.pick(TYPED[kind] + (["x"] if self.random.random() < 0.05 else []))

    def expression(self, depth: int = 0) -> str:
        if depth > 2:
            return self.simple()
        makers = [self.simple, self.filtered, self.filtered, self.method, self.binary, self.compared, self.tested,
                  self.conditional, self.logic, self.subscript, self.sliced, self.row, self.percent, self.concat,
                  self.unary]
        maker = self.pick(makers)
        return maker() if maker == self.simple else maker(depth + 1)

    def filtered(self, depth):
        kind = self.pick(list(FILTERS))
        value = self.simple(kind) if self.random.random() < 0.95 else f"({self.expression(depth)})"
        text = f"{value} | {self.pick(FILTERS[kind])}"
        return f"({text})"

    def method(self, depth):
        if self.random.random() < 0.25:
            return self.simple("dict") + self.pick([".items() | list", ".keys() | list", ".values() | list", ".get('a')",
                                                    ".get('q', 7)", ".items", "['items']", ".b", "['b']", ".x.y"])
        value = self.simple("text") if self.random.random() < 0.97 else f"({self.expression(depth)})"
        return f"{value}.{self.pick(TEXT_METHODS)}"

    def binary(self, depth):
        op = self.pick(["+", "-", "*", "/", "//", "%", "**", "+", "+"])
        kind = self.pick(["number", "number", "text"]) if op == "+" else "number"
        left, right = ((self.simple(kind), self.simple(kind)) if self.random.random() < 0.95
                       else (self.expression(depth), self.expression(depth)))
        if op == "**" and left.startswith("-"):
            op = "*"  # jinja2 folds the sign into the number, and then raises the number alone
        return f"({left} {op} {right})"

    def compared(self, depth):
        op = self.pick(["==", "!=", "in", "<", ">="])
        if op in ("<", ">=") and self.random.random() < 0.95:
            kind = self.pick(["number", "text"])
            return f"({self.simple(kind)} {op} {self.simple(kind)})"
        if op == "in" and self.random.random() < 0.95:
            return f"({self.simple('text')} {self.pick(['in', 'not in'])} {self.simple(self.pick(['text', 'list', 'dict']))})"
        more = f" {self.pick(['<', '=='])} {self.simple('number')}" if self.random.random() < 0.1 else ""
        return f"({self.expression(depth)} {op} {self.expression(depth)}{more})"

    def tested(self, depth):
        test = self.pick(TESTS)
        needs_number = test.startswith(("odd", "even", "div", "gt"))
        return f"({self.simple('number') if needs_number else self.expression(depth)} is {test})"

    def conditional(self, depth):
        other = f" else {self.expression(depth)}" if self.random.random() < 0.7 else ""
        return f"({self.expression(depth)} if {self.expression(depth)}{other})"

    def logic(self, depth):
        return f"({self.expression(depth)} {self.pick(['and', 'or'])} {self.expression(depth)})"

    def subscript(self, depth):
        return f"{self.simple(self.pick(['list', 'dict', 'text']))}[{self.pick(['0', '-1', '1', repr('a'), repr('role'), '9', self.expression(depth)])}]"

    def sliced(self, depth):
        bounds = [self.pick(["", "", "1", "-1", "2", "n", "-20"]) for _ in range(2)]
        step = self.pick(["", "", ":-1", ":2", ":-2"])
        return f"{self.simple(self.pick(['list', 'text']))}[{bounds[0]}:{bounds[1]}{step}]"

    def row(self, depth):
        items = ", ".join(self.expression(depth) for _ in range(self.random.randrange(3)))
        return self.pick([f"[{items}]", f"({items},)" if items else "()", f"{{'k': {self.expression(depth)}}}"])

    def percent(self, depth):
        if self.random.random() < 0.5:
            return f"({self.pick(['%d', '%5.2f', '%03d', '%+d', '%e', '%g', '%.1f', '%5d|'])!r} % {self.simple('number')})"
        form = self.pick(["'%s'", "'<%s>'", "'%-4s|'", "'%r'", "'%.2s'", "'%d'"])
        return f"({form} % ({self.expression(depth)},))"

    def concat(self, depth):
        return f"({self.expression(depth)} ~ {self.expression(depth)})"

    def unary(self, depth):
        return self.pick([f"(not {self.expression(depth)})", f"(-{self.simple('number')})", f"(+{self.simple('number')})"])

    def tag(self, text: str) -> str:
        return "{%" + self.pick(["", "", "-", "+"]) + f" {text} " + self.pick(["", "", "-"]) + "%}"

    def space(self) -> str:
        return self.pick(["", "", " ", "\n", "\n  ", "a", " b\n", "\n\n", "{# c #}", "{#- c -#}\n"])

    def body(self, depth: int) -> str:
        return "".join(self.space() + self.statement(depth) + self.space()
                       for _ in range(self.random.randrange(1, 3)))

    def statement(self, depth: int = 0) -> str:
        if depth > 2 or self.random.random() < 0.45:
            return "{{" + self.pick(["", "-"]) + f" {self.expression()} " + self.pick(["", "-"]) + "}}"
        kind = self.pick(["if", "for", "for", "set", "block", "macro", "filter", "with", "ns", "call", "raw"])
        if kind == "if":
            text = self.tag(f"if {self.expression()}") + self.body(depth + 1)
            if self.random.random() < 0.3:
                text += self.tag(f"elif {self.expression()}") + self.body(depth + 1)
            if self.random.random() < 0.5:
                text += self.tag("else") + self.body(depth + 1)
            return text + self.tag("endif")
        if kind == "for":
            return self.loop(depth)
        if kind == "set":
            return self.tag(f"set {self.pick(['x', 'y'])} = {self.expression()}") + "{{ x }}"
        if kind == "block":
            return self.tag("set x" + self.pick(["", " | upper", " | trim"])) + self.body(depth + 1) + self.tag("endset") + "{{ x }}"
        if kind == "macro":
            return (self.tag("macro mac(a, b=" + self.simple() + ")") + "{{ a }}|{{ b }}" + self.body(depth + 1)
                    + self.tag("endmacro") + self.pick(["{{ mac(1) }}", "{{ mac('q', b=2) }}", "{{ mac() }}", "{{ mac(1, 2) | upper }}"]))
        if kind == "call":
            return (self.tag("macro outer(a)") + "[{{ caller(a) }}{{ caller(2) }}]" + self.tag("endmacro")
                    + self.tag("call(c) outer(" + self.simple() + ")") + "{{ c }}" + self.body(depth + 1) + self.tag("endcall"))
        if kind == "filter":
            return self.tag("filter " + self.pick(["upper", "trim", "replace('a', 'b') | title", "indent(3)"])) + self.body(depth + 1) + self.tag("endfilter")
        if kind == "with":
            return self.tag(f"with x = {self.expression()}, y = {self.simple()}") + "{{ x }}{{ y }}" + self.body(depth + 1) + self.tag("endwith")
        if kind == "ns":
            return self.tag(f"set ns.a = {self.expression()}") + "{{ ns.a }}"
        return self.tag("raw") + " {{ x }} {% y %}\n" + self.tag("endraw")

    def loop(self, depth: int) -> str:
        names, rows = self.pick([("x", "list"), ("x", "list"), ("x", "text"), ("x", "dict"), ("k, v", "items")])
        source = self.simple("dict") + ".items()" if rows == "items" else self.simple(rows)
        condition = f" if {self.expression(1)}" if self.random.random() < 0.2 else ""
        inner = self.pick(["{{ loop.index }}", "{{ loop.index0 }}{{ loop.last }}", "{{ loop.first }}{{ loop.length }}",
                           "{{ loop.previtem }}{{ loop.nextitem is defined }}", "{{ loop.revindex }}", "", "",
                           "{{ loop.cycle('a', 'b') }}", "{% if loop.index > 2 %}{% break %}{% endif %}",
                           "{% if loop.index == 2 %}{% continue %}{% endif %}", "{{ loop.changed(x) }}", "{{ loop.depth }}"])
        printed = "{{ x }}" if names == "x" else "{{ k }}={{ v }}"
        other = self.tag("else") + "none" if self.random.random() < 0.2 else ""
        return (self.tag(f"for {names} in {source}{condition}") + inner + printed + self.body(depth + 1) + other
                + self.tag("endfor"))

    def template(self) -> str:
        return "{% set ns = namespace(a=1) %}" + "".join(
            self.space() + self.statement() for _ in range(self.random.randrange(1, 5))) + self.space()


class ChatMaker(Maker):
    """Templates in the form of chat templates: a loop over messages, roles, tools, calls, thoughts."""

    ROLES = ["user", "assistant", "system", "tool", "developer"]

    def mark(self) -> str:
        return self.pick(["<|im_start|>", "<|im_end|>\\n", "[INST] ", " [/INST]", "<s>", "### ", "\\n\\n", "<|end|>", ""])

    def content(self) -> str:
        return self.pick([
            "message.content", "message['content']", "message.content | trim", "message['content'] | string",
            "message.content.strip()", "message.content | default('', true)", "(message.content or '')",
            "message.get('content')", "message.get('content', '')", "message.content.split('</think>')[-1].lstrip('\\n')",
            "message.content if message.content is string else message.content | map(attribute='text') | join",
            "message.content[0].text if message.content is not string else message.content",
            "message.content | replace('<', '(') | upper", "message.content | tojson", "message.content[:5]",
            "message.content.rstrip('\\n').lstrip()", "text", "message.content | length"])

    def role(self) -> str:
        role = self.pick(self.ROLES)
        return self.pick([f"message.role == '{role}'", f"message['role'] == '{role}'", f"message.role != '{role}'",
                          f"message.role in ['{role}', 'user']", f"message.role not in ('{role}', 'x')",
                          f"(message.role == 'user') != (loop.index0 % 2 == 0)",
                          f"message.role == '{role}' and not loop.first", f"message['role'] is equalto '{role}'"])

    def condition(self) -> str:
        return self.pick([
            self.role(), self.role(), "loop.first", "loop.last", "not loop.last", "loop.index0 == 0",
            "message.content is string", "message.content is defined and message.content", "message.content is none",
            "message.tool_calls is defined", "message.tool_calls", "'tool_calls' in message", "message.get('tool_calls')",
            "message.reasoning_content is defined and message.reasoning_content is string",
            "loop.previtem is defined and loop.previtem.role == message.role",
            "loop.nextitem is defined and loop.nextitem.role == 'tool'", "loop.index0 > ns.last",
            "message.content is iterable and message.content is not mapping", "message.content is mapping",
            "tools", "tools is defined and tools is not none", "enable_thinking is defined and enable_thinking is false",
            "add_generation_prompt", "'</think>' in message.content", "message.content.startswith('<')",
            "message.name is defined", "ns.seen", "not ns.seen and loop.index > 1", "strftime_now is defined",
            "loop.length > 2 and loop.revindex0 < 2", "message['content'] is sequence", "bos_token is undefined"])

    def output(self) -> str:
        return self.pick([
            "{{ '" + self.mark() + "' + message.role + '\\n' + " + self.pick(["message.content", "(message.content | string)"]) + " + '" + self.mark() + "' }}",
            "{{- '" + self.mark() + "' ~ message['role'] ~ " + self.content() + " }}",
            "{{ " + self.content() + " }}", "{{- " + self.content() + " -}}", "{{ bos_token }}", "{{ eos_token }}",
            self.mark().replace("\\n", "\n"), "{{ message.role | capitalize }}: {{ " + self.content() + " }}",
            "{{ message | tojson }}", "{{ message | string }}", "{{ message.keys() | list | join(',') }}",
            "{% generation %}{{ " + self.content() + " }}" + self.mark().replace("\\n", "\n") + "{% endgeneration %}",
            "{{ '%s: %s' % (message.role, message.content) }}", "{{ '{}|{}'.format(message.role, loop.index) }}",
            "{{ raise_exception('role ' ~ message.role) }}" if self.random.random() < 0.1 else "{{ loop.index }}",
            "{{ ns.last }}{{ ns.seen }}", "{{ strftime_now('%d %b %Y') }}", "{{ say(message.role, " + self.content() + ") }}",
            "{{ say(role=message.role, text='x') | trim }}", self.calls(), self.parts(), self.thought()])

    def calls(self) -> str:
        arguments = self.pick(["call.function.arguments", "call['function']['arguments']", "call.arguments",
                               "(call.function if call.function else call).arguments"])
        body = self.pick([
            "{{ " + arguments + " | tojson }}", "{{ " + arguments + " if " + arguments + " is string else " + arguments + " | tojson(indent=2) }}",
            "{% for k, v in " + arguments + ".items() %}{{ k }}={{ v | tojson if v is not string else v }};{% endfor %}",
            "{% for k, v in " + arguments + " | items %}<{{ k }}>{{ v }}{% endfor %}",
            "{{ {'name': call.function.name, 'arguments': " + arguments + "} | tojson }}",
            "{% for k, v in " + arguments + " | dictsort %}{{ k ~ v }}{% endfor %}"])
        return ("{%- if message.tool_calls is defined and message.tool_calls %}{%- for call in message.tool_calls -%}\n"
                "{{ call.function.name }}" + self.pick(["{{ loop.index0 }}", "{% if not loop.last %}, {% endif %}", ""]) + body
                + "{% endfor %}{% endif %}")

    def parts(self) -> str:
        return ("{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content"
                + self.pick(["", " if part.type == 'text'", " | selectattr('type', 'equalto', 'text')"]) + " %}"
                + self.pick(["{{ part.text }}", "{{ part['text'] | trim }}", "{{ part.type }}{{ part.text if 'text' in part }}"])
                + "{% endfor %}{% endif %}")

    def thought(self) -> str:
        return ("{%- set text = " + self.pick(["message.content", "message.content | string", "(message.content or '')"]) + " %}"
                "{%- set thought = '' %}{%- if message.reasoning_content is string %}{%- set thought = message.reasoning_content %}"
                "{%- elif '</think>' in text %}{%- set thought = text.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}"
                "{%- set text = text.split('</think>')[-1].lstrip('\\n') %}{%- endif %}"
                + self.pick(["{{ '<think>\\n' + thought + '\\n</think>\\n' + text }}", "{% if thought %}[{{ thought | trim }}]{% endif %}{{ text }}"]))

    def in_loop(self, depth: int = 0) -> str:
        if depth > 2 or self.random.random() < 0.5:
            return self.output()
        text = self.tag("if " + self.condition()) + self.space() + self.in_loop(depth + 1)
        while self.random.random() < 0.4:
            text += self.tag("elif " + self.condition()) + self.in_loop(depth + 1)
        if self.random.random() < 0.5:
            text += self.tag("else") + self.space() + self.in_loop(depth + 1)
        return text + self.tag("endif") + self.space()

    def head(self) -> str:
        return self.pick([
            "", "{{ bos_token }}", "{{- bos_token -}}",
            "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set messages = messages[1:] %}"
            "{% else %}{% set system = 'none' %}{% endif %}{{ system }}",
            "{%- if messages[0]['role'] == 'system' -%}{%- set loop_messages = messages[1:] -%}{{ messages[0].content | trim }}"
            "{%- else -%}{%- set loop_messages = messages -%}{%- endif -%}",
            "{%- for message in messages[::-1] %}{%- set index = (messages | length - 1) - loop.index0 %}"
            "{%- if ns.seen == false and message.role == 'user' %}{%- set ns.seen = true %}{%- set ns.last = index %}{%- endif %}{%- endfor %}",
            "{% set system = messages | selectattr('role', 'equalto', 'system') | map(attribute='content') | list %}{{ system | join('\\n') }}",
            "{% if not date is defined %}{% set date = strftime_now('%Y-%m-%d') %}{% endif %}{{ date }}",
            "{% set roles = messages | map(attribute='role') | unique | list %}{{ roles }}",
            "{% if messages | rejectattr('content', 'string') | list %}parts{% endif %}",
            "{% for message in messages if message.role != 'system' %}{{ loop.index }}/{{ loop.length }} {% endfor %}"])

    def tools(self) -> str:
        return self.tag("if " + self.pick(["tools", "tools is defined and tools", "tools is not none", "tools is iterable and tools | length > 0"])) + self.pick([
            "{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}", "{{ tools | tojson(indent=4) }}",
            "{% for tool in tools %}{{ tool.function.name }}: {{ tool.function.description }}\n{% for name, p in tool.function.parameters.properties.items() %}"
            " {{ name }} {{ p.type }}{% if name in tool.function.parameters.required %}*{% endif %}{% if p.enum %}{{ p.enum | join('|') }}{% endif %}\n{% endfor %}{% endfor %}",
            "{% for tool in tools %}{{ tool.function | items | map('first') | join(',') }}{% endfor %}",
            "{{ tools | map(attribute='function') | map(attribute='name') | join(', ') }}",
            "{% for tool in tools %}{% set f = tool.function %}{{ f.parameters | tojson(indent=2, sort_keys=true) }}{{ f['return'] }}{% endfor %}",
            "{% set ns.seen = true %}{{ tools[0].function.parameters.properties | dictsort | map('first') | list }}",
            "{{ tools | tojson(separators=(',', ': ')) | length }}{{ tools | string }}"]) + self.tag("endif")

    def template(self) -> str:
        rows = self.pick(["messages", "messages", "messages[1:]", "messages | reverse", "messages[::-1]",
                          "(loop_messages if loop_messages is defined else messages)"])
        return ("{%- set ns = namespace(last=0, seen=false) -%}\n{%- macro say(role, text='-') -%}\n<{{ role }}>{{ text }}\n{%- endmacro -%}\n"
                + self.head() + self.tools() + self.space() + self.tag("for message in " + rows) + self.space()
                + "".join(self.in_loop() + self.space() for _ in range(self.random.randrange(1, 4)))
                + self.pick(["", "{% set ns.seen = true %}", "{% set ns.last = loop.index0 %}", "{% if loop.index > 3 %}{% break %}{% endif %}"])
                + self.tag("endfor") + self.space()
                + self.pick(["", "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
                             "{%- if add_generation_prompt -%}\n{{- '<|assistant|>' -}}\n{%- if enable_thinking is defined and enable_thinking is false %}\n"
                             "    {{- '<think>\\n\\n</think>' }}\n{%- endif %}\n{%- endif -%}\n"]))


NAMES = sorted(CONVERSATIONS)


def make(seed: int, number: int):
    """The template of this number, and the variables that it renders."""
    key = seed * 1_000_003 + number
    if number % 5 > 0:
        return Maker(key).template(), VARIABLES
    maker = ChatMaker(key)
    return maker.template(), {**SPECIAL_TOKENS, **CONVERSATIONS[maker.pick(NAMES)]}


def verdict(want: dict, got: dict) -> str:
    if "text" in want and " at 0x" in want["text"].lower():
        return "prints an address"
    if "text" in want and want["text"] == got.get("text"):
        return "equal"
    if "error" in want and "error" in got:
        return "refused by both"
    if "error" in got and ("not supported" in got["error"] or "cannot be printed" in got["error"]):
        return "not supported"
    return "different"


def compare(seed: int, numbers: range, program: str):
    ours, counts, different = Ours(program), Counter(), []
    for number in numbers:
        template, variables = make(seed, number)
        want, got = render(template, variables), ours.render(template, variables)
        said = verdict(want, got)
        counts[said] += 1
        if said == "different":
            different.append((number, template, want, got))
    return counts, different


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--first", type=int, default=0, help="number of the first template")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="processes that compare")
    parser.add_argument("--program", default="build/release/bin/jinja_lines")
    parser.add_argument("--show", type=int, default=5, help="differences that are printed")
    arguments = parser.parse_args()
    counts, end = Counter(), arguments.first + arguments.count
    with ProcessPoolExecutor(arguments.jobs) as processes:
        parts = [processes.submit(compare, arguments.seed, range(first, min(first + 1000, end)), arguments.program)
                 for first in range(arguments.first, end, 1000)]
        for part in parts:
            more, different = part.result()
            for number, template, want, got in different[:max(0, arguments.show - counts["different"])]:
                print(f"--- template {number}\n{template}\n  jinja2: {want}\n  ours:   {got}", flush=True)
            counts.update(more)
    print(f"{arguments.count} templates of seed {arguments.seed}: {dict(counts)}")
    return 1 if counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
