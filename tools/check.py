#!/usr/bin/env python3
"""Runs the checks of the tree that need no test program, and prints a line for each.

  tools/check.py                  the checks that CI runs before the tests
  tools/check.py classes format   only these
  tools/check.py --all            the same, and clang and clang-tidy read every source instead of some
  tools/check.py --list           what each check looks at
  tools/check.py --format         lays out every file as the check "format" wants it
  tools/check.py --shrink         writes an improvement down in tools/checks/exceptions.txt: entries that are no longer
                                  true go or get smaller; nothing is ever added

Needs Python and what `tools/install_deps.sh core check` installs. A tool that is missing makes its check fail; one of
another version than the tree is written for makes its check say so and skip.
"""
import argparse
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "checks"))

import commands  # noqa: E402
import structure  # noqa: E402
from source_tree import ROOT, SourceTree  # noqa: E402

EXCEPTIONS = ROOT / "tools" / "checks" / "exceptions.txt"


class Structure:
    """The checks of structure.py over one reading of the tree."""

    def __init__(self, tree, exceptions):
        self._tree = tree
        self._exceptions = exceptions

    def circles(self, _):
        problems = structure.check_circles(self._tree.includes(), self._exceptions.circles)
        return problems, f"{len(self._tree.files)} files, {len(self._exceptions.circles)} known circles"

    def classes(self, _):
        outlines = self._tree.outlines()
        problems = structure.check_classes(outlines, self._exceptions.classes)
        count = sum(len(outline.classes) for outline in outlines.values())
        return problems, f"{count} classes, {len(self._exceptions.classes)} known exceptions"

    def names(self, _):
        outlines = self._tree.outlines()
        return structure.check_names(outlines), f"{sum(len(outline.classes) for outline in outlines.values())} classes"

    def functions(self, _):
        outlines = self._tree.outlines()
        problems = structure.check_functions(outlines, self._exceptions.functions)
        count = sum(len(outline.functions) for outline in outlines.values())
        return problems, f"{count} functions, {len(self._exceptions.functions)} known exceptions"


def all_checks(shape):
    """Name, what it looks at, the check, and what to do when it fails; the quick ones first."""
    shorten = "split it; where the list is longer than the truth, run tools/check.py --shrink"
    return [
        ("layers", "includes follow cmake/layers.cmake", commands.layers,
         "include something lower, or move the code; cmake/layers.cmake has the rules"),
        ("circles", "no header and source include each other in a circle", shape.circles,
         "move the types that both need into a header of their own; known circles: tools/checks/exceptions.txt"),
        ("classes", f"no class over {structure.MAX_METHODS} methods or {structure.MAX_FIELDS} fields",
         shape.classes, shorten),
        ("names", "no type has the name of another one of its namespace", shape.names, "give one of them another name"),
        ("functions", f"no function over {structure.MAX_FUNCTION_LINES} lines", shape.functions, shorten),
        ("docs", "generated pages say what their results say", commands.docs, "run bench/report.py"),
        ("presets", "every preset configures", commands.presets, "mend CMakePresets.json or the CMake files"),
        ("format", "clang-format changes nothing", commands.format_check, "run make format"),
        ("thread-safety", "clang finds every guarded field locked", commands.thread_safety,
         "hold the mutex, or state the contract with an annotation of absl/base/thread_annotations.h"),
        ("tidy", "clang-tidy with the list of .clang-tidy", commands.tidy,
         "mend the code; a finding that is wrong gets // NOLINT(check): and the reason"),
    ]


def run_check(check, options):
    name, _, function, advice = check
    started = time.monotonic()
    try:
        problems, summary = function(options)
        verdict = "FAIL" if problems else "ok"
    except commands.Unavailable as reason:
        problems, summary, verdict = [], str(reason), "skip"
    print(f"{verdict:4}  {name:14} {time.monotonic() - started:6.1f} s  {summary}", flush=True)
    for problem in problems[:options.show]:
        print("        " + problem.replace("\n", "\n        "))
    if len(problems) > options.show:
        print(f"        and {len(problems) - options.show} more (--show {len(problems)})")
    if problems:
        print(f"      what to do: {advice}", flush=True)
    return verdict


def shrink(tree, exceptions):
    heading = "".join(line for line in EXCEPTIONS.read_text().splitlines(True) if line.startswith("#"))
    outlines, includes = tree.outlines(), tree.includes()
    shorter = structure.Exceptions(structure.shrunk_classes(outlines, exceptions.classes),
                                   structure.shrunk_functions(outlines, exceptions.functions),
                                   structure.shrunk_circles(includes, exceptions.circles))
    EXCEPTIONS.write_text(heading + "".join(line + "\n" for line in shorter.lines()))
    print(f"{EXCEPTIONS.relative_to(ROOT)}: {len(list(exceptions.lines()))} entries before, "
          f"{len(list(shorter.lines()))} now")


def parse(arguments, names):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     epilog="checks: " + ", ".join(names))
    parser.add_argument("checks", nargs="*", metavar="CHECK", help="only these, instead of all")
    parser.add_argument("--all", action="store_true", help="clang and clang-tidy read every source")
    parser.add_argument("--list", action="store_true", help="say what each check looks at")
    parser.add_argument("--format", action="store_true", help="lay out every file with clang-format")
    parser.add_argument("--shrink", action="store_true", help="shorten tools/checks/exceptions.txt to what is true")
    parser.add_argument("--show", type=int, default=20, help="problems to print per check (20)")
    parser.add_argument("--jobs", type=int, help="processes at a time (all cores)")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.checks if name not in names]
    if unknown:
        parser.error(f"no check is called {', '.join(unknown)}; there are {', '.join(names)}")
    return options


def main():
    tree = SourceTree()
    exceptions = structure.read_exceptions(EXCEPTIONS.read_text())
    checks = all_checks(Structure(tree, exceptions))
    options = parse(sys.argv[1:], [check[0] for check in checks])
    if options.list:
        print("\n".join(f"{name:14} {about}" for name, about, _, _ in checks))
        return 0
    if options.format:
        return commands.format_files()
    if options.shrink:
        shrink(tree, exceptions)
        return 0
    chosen = [check for check in checks if not options.checks or check[0] in options.checks]
    failed = [check[0] for check in chosen if run_check(check, options) == "FAIL"]
    if failed:
        print(f"failed: {', '.join(failed)}; one alone: make check ONLY={failed[0]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
