#!/usr/bin/env python3
"""Writes docs/flags.md, a table of all flags of all commands, from --help of the built program.

  make_flags_page.py --tandem build/release/bin/tandem           writes the page
  make_flags_page.py --tandem build/release/bin/tandem --check   exit status 1 when the page says something else

The program must have been built with all its commands (CMake option TANDEM_TOOLS).
"""
import argparse
import dataclasses
import pathlib
import re
import sys

import help_text

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "flags.md"
_INTRODUCTION = """# All flags

Made from `--help` of the program by `tools/packaging/make_flags_page.py`; a test fails when this page is out of date. In a
configuration file the same flags are keys, without their dashes ([configuration.md](configuration.md)). **Default** is empty where
there is none, or where the meaning says what it depends on. **Values** says what may be given besides: a size is a number of bytes
with or without a unit, as `512MiB`. A switch is off unless it is given; `--switch=false` switches it off where a file has it on.
"""
# Units of flags whose names do not say them.
_UNITS = {"--max-wait": "s", "--max-reservation-wait": "s", "--profile-at-start": "s", "--timeout": "s", "--wait": "s",
          "--days": "days", "--kv-bandwidth": "bytes/s", "--request-rate": "requests/s", "--input-len": "tokens",
          "--output-len": "tokens", "--random-prefix-len": "tokens", "--max-input-len": "tokens",
          "--max-output-len": "tokens", "--max-context": "tokens", "--context": "tokens", "--max-prefill-chunk": "tokens",
          "--request-cancellation-delay": "s", "--ramp-up-start-rps": "requests/s", "--ramp-up-end-rps": "requests/s"}
_UNIT_ENDINGS = {"-bytes": "bytes", "-ms": "ms", "-us": "us", "-seconds": "s", "-sec": "s", "-tokens": "tokens", "-mib": "MiB",
                 "-gb-per-s": "GB/s"}
_KINDS = {"TEXT": "text", "UINT": "whole number", "INT": "whole number", "FLOAT": "number", "FILE": "file", "": "switch"}


@dataclasses.dataclass
class Flag:
    names: list
    values: str
    default: str
    unit: str
    meaning: str


def split_default(value):
    """What stands before and behind the first = outside of brackets."""
    depth = 0
    for index, letter in enumerate(value):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "=" and depth == 0:
            return value[:index], value[index + 1:]
    return value, ""


def size_text(default):
    """ "256 MiB" for "268435456"."""
    count = int(default)
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size and count % size == 0:
            return f"{count // size} {unit}"
    return default


def values_text(kind, form):
    if form.startswith("{"):
        return ", ".join(f"`{choice}`" for choice in form.strip("{}").split(","))
    limits = re.search(r"in \[(\S+) - (\S+)\]", form)
    if form.startswith("SIZE"):
        return "size" if not limits else f"size from {size_text(limits[1])} to {size_text(limits[2])}"
    if limits:
        return f"{_KINDS[kind]} from {limits[1]} to {limits[2]}"
    known = {"POSITIVE": "above 0", "NONNEGATIVE": "from 0 on", "SECONDS|off": "or `off`"}
    if form == "FILE":
        return "file that exists"
    if form in known:
        return f"{_KINDS[kind]} {known[form]}"
    return f"`{form}`" if form else _KINDS[kind]


def unit_of(names, form):
    for name in names:
        if name in _UNITS:
            return _UNITS[name]
        for ending, unit in _UNIT_ENDINGS.items():
            if name.endswith(ending):
                return unit
    return "bytes" if form.startswith("SIZE") else ""


def flag_of(entry):
    value, _, relation = entry.value.partition("Excludes: ")
    value, _, needed = value.partition("Needs: ")
    value = value.strip()
    required = value.endswith("REQUIRED")
    value = value.removesuffix("REQUIRED").strip()
    several = value.endswith("...") and not value.endswith(", ...")
    value = value.removesuffix("...").strip() if several else value
    left, default = split_default(value)
    kind, _, form = left.partition(":")
    if form.startswith("SIZE") and default:
        default = size_text(default)
    notes = [f"not with `{relation.strip()}`"] if relation else []
    notes += [f"only with `{needed.strip()}`"] if needed else []
    notes += ["may be repeated"] if several and "may be repeated" not in entry.text else []
    meaning = "; ".join([entry.text, *notes]).strip("; ")
    return Flag(entry.names, values_text(kind, form), "required" if required else default,
                unit_of(entry.names, form), meaning)


def cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def row(flag):
    names = ", ".join(f"`{name}`" for name in flag.names)
    default = flag.default if flag.default in ("", "required") else f"`{flag.default}`"
    values = flag.values.replace("|", "\\|")
    return f"| {names} | {default} | {flag.unit} | {values} | {cell(flag.meaning)} |"


def is_help(entry):
    return "--help" in entry.names


def sections_of(command, left_out):
    lines = []
    for title, entries in command.sections:
        if title in ("Subcommands", "Positionals"):
            continue
        flags = [flag_of(entry) for entry in entries if not is_help(entry) and tuple(entry.names) not in left_out]
        if not flags:
            continue
        if title != "Options":
            lines += [f"**{title}**", ""]
        lines += ["| flag | default | unit | values | meaning |", "|---|---|---|---|---|", *map(row, flags), ""]
    return lines


def page(commands):
    lines = [_INTRODUCTION]
    by_path = {command.path: command for command in commands}
    of_up = {tuple(entry.names) for entry in by_path[("up",)].options()}
    for command in commands:
        left_out = of_up if command.path == ("check",) else set()
        sections = sections_of(command, left_out)
        if not sections:
            continue
        name = " ".join(("tandem", *command.path))
        lines += [f"## {name}", "", command.summary + ("" if command.summary.endswith(".") else "."), ""]
        if left_out:
            lines += ["It has all flags of [tandem up](#tandem-up) as well.", ""]
        lines += sections
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", required=True)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    text = page(help_text.read_all(arguments.tandem))
    if not arguments.check:
        PAGE.write_text(text)
        return 0
    if PAGE.exists() and PAGE.read_text() == text:
        return 0
    print(f"{PAGE} does not say what --help says: run {sys.argv[0]} --tandem {arguments.tandem}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
