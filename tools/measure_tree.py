#!/usr/bin/env python3
"""Prints how large the files, functions and classes of the tree are, as Markdown tables.

  tools/measure_tree.py               this tree
  tools/measure_tree.py --root DIR    another checkout, for instance of an older commit

The numbers are those that `make check` judges (tools/checks/cpp_outline.py says how they are counted). Standard library
only.
"""
import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "checks"))

import structure  # noqa: E402
from source_tree import ROOT, SourceTree, room  # noqa: E402

NOT_SERVED = ("tests", "bench", "tools")  # rooms that no product contains
MAX_P90_OF_FILES = 250


def percentile(values, share):
    """The smallest value that at least `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)] if ordered else 0


def summary(values, shares):
    return "/".join(str(percentile(values, share)) for share in shares)


def size_row(name, files, tree, outlines):
    lines = [tree.text(file).count("\n") for file in files]
    functions = [one.lines for file in files for one in outlines[file].functions]
    over = sum(length > structure.MAX_FUNCTION_LINES for length in functions)
    return (f"| {name} | {len(files)} | {sum(lines)} | {summary(lines, (50, 90, 100))} | {len(functions)} | "
            f"{summary(functions, (50, 90, 99, 100))} | {over} |")


def sizes(tree, outlines):
    yield "| room | files | lines | file lines p50/p90/max | functions | function lines p50/p90/p99/max | over 60 |"
    yield "|---|---|---|---|---|---|---|"
    rooms = sorted({room(file) for file in tree.files})
    wide = []
    for one in rooms:
        files = [file for file in tree.files if room(file) == one]
        yield size_row(one, files, tree, outlines)
        p90 = percentile([tree.text(file).count("\n") for file in files], 90)
        if p90 > MAX_P90_OF_FILES:
            wide.append(f"{one} ({p90})")
    served = [file for file in tree.files if room(file) not in NOT_SERVED]
    yield size_row("**served**", served, tree, outlines)
    yield size_row("**all**", tree.files, tree, outlines)
    yield ""
    yield f"Rooms whose p90 of file lines is over {MAX_P90_OF_FILES}: {', '.join(wide) or 'none'}."


def files_of_class(described, outlines):
    """The files that define the class or a member of it."""
    prefix = described.name + "::"
    return {described.file} | {
        one.file for file, outline in outlines.items() if room(file) == room(described.file)
        for one in outline.functions if one.name.startswith(prefix)}


def classes(outlines):
    yield (f"Classes over {structure.MAX_METHODS} methods or {structure.MAX_FIELDS} fields, "
           "records without methods left out:")
    yield ""
    yield "| class | room | methods / fields / files |"
    yield "|---|---|---|"
    for one in structure.large_classes(outlines):
        yield (f"| {one.name} | {room(one.file)} | {len(one.methods)} / {len(one.fields)} / "
               f"{len(files_of_class(one, outlines))} |")


def functions(outlines):
    yield f"Functions over {structure.MAX_FUNCTION_LINES} lines:"
    yield ""
    for one in structure.long_functions(outlines):
        yield f"- {one.name}, {one.lines} lines ({one.file}:{one.first_line})"


def circles(tree):
    includes = tree.includes()
    units = {}
    for file in tree.files:
        units.setdefault(room(file), set()).add(structure.unit(file))
    yield "Include circles (a header and its source are one unit):"
    yield ""
    for circle in sorted(map(sorted, structure.circles(includes)), key=lambda one: (-len(one), one)):
        where = room(circle[0])
        yield f"- {where}, {len(circle)} of {len(units[where])} units: {', '.join(circle)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--root", default=ROOT, help="the checkout to measure")
    tree = SourceTree(parser.parse_args().root)
    outlines = tree.outlines()
    for part in (sizes(tree, outlines), classes(outlines), functions(outlines), circles(tree)):
        print("\n".join(part) + "\n")


if __name__ == "__main__":
    main()
