#!/usr/bin/env python3
"""Measures how many deliberate faults the tests notice.

Each entry of tools/mutants/*.toml is one fault (a mutant): a text that occurs once in a source
file, and what to put in its place. In that replacement MUTANT stands for "this mutant is active".
All mutants are compiled into one scratch copy of the tree (build/mutants/src), and the environment
variable TANDEM_MUTANT selects the active one, so a whole run costs one build. A mutant is killed
when a test program of its room fails, crashes or exceeds its time limit.

  tools/mutants/run.py                        every room
  tools/mutants/run.py --room kvstore,engine  some rooms
  tools/mutants/run.py --id 22,24             some mutants
  tools/mutants/run.py --check-list           only check that every entry still applies (a second)
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
LISTS = ROOT / "tools" / "mutants"
WORK = ROOT / "build" / "mutants"
COPY = WORK / "src"
BUILD = COPY / "build" / "release"

HEADER = """#pragma once

#include <cstdlib>

namespace tandem {

inline const int kActiveMutant = [] {
  const char* const value = std::getenv("TANDEM_MUTANT");
  return value == nullptr ? 0 : std::atoi(value);
}();

inline bool IsMutant(int id) { return kActiveMutant == id; }

}  // namespace tandem
"""

KEYS = {"id", "file", "what", "find", "into", "first", "equivalent"}


class ListError(Exception):
    """The lists of mutants and the tree do not fit together."""


def load(rooms):
    """The mutants of the rooms (all when empty), each with its room and its tests."""
    mutants = []
    for path in sorted(LISTS.glob("*.toml")):
        if rooms and path.stem not in rooms:
            continue
        with open(path, "rb") as file:
            content = tomllib.load(file)
        for entry in content["mutant"]:
            unknown = set(entry) - KEYS
            if unknown:
                raise ListError(f"{path.name}: mutant {entry.get('id')}: unknown {unknown}")
            entry["room"] = path.stem
            first = entry.get("first", [])
            entry["tests"] = first + [name for name in content["tests"] if name not in first]
            mutants.append(entry)
    counts = collections.Counter(mutant["id"] for mutant in mutants)
    twice = [number for number, count in counts.items() if count > 1]
    if twice:
        raise ListError(f"mutant ids are used twice: {twice}")
    return mutants


def edits_of(mutants):
    """By file, the replacements (begin, end, text); and why mutants are stale, by id."""
    edits = collections.defaultdict(list)
    stale = {}
    for mutant in mutants:
        path = ROOT / mutant["file"]
        if not path.is_file():
            stale[mutant["id"]] = f"{mutant['file']} does not exist"
            continue
        text = path.read_text()
        count = text.count(mutant["find"])
        if count != 1:
            stale[mutant["id"]] = f"{mutant['file']} has its text {count} times"
            continue
        if not re.search(r"\bMUTANT\b", mutant["into"]):
            stale[mutant["id"]] = "its replacement does not ask for MUTANT"
            continue
        begin = text.index(mutant["find"])
        into = re.sub(r"\bMUTANT\b", f"::tandem::IsMutant({mutant['id']})", mutant["into"])
        edits[mutant["file"]].append((begin, begin + len(mutant["find"]), into, mutant["id"]))
    for file, replacements in edits.items():
        replacements.sort()
        for before, after in zip(replacements, replacements[1:]):
            if before[1] > after[0]:
                stale[after[3]] = f"{file}: its text overlaps that of {before[3]}"
    return edits, stale


def unknown_tests(mutants):
    """The test programs of the lists that tests/*.cmake does not register, by room."""
    words = set()
    for path in (ROOT / "tests").glob("*.cmake"):
        words.update(re.findall(r"\w+", path.read_text()))
    unknown = collections.defaultdict(set)
    for mutant in mutants:
        for name in mutant["tests"]:
            # A loop of kernels.cmake appends the _test to the names.
            if name not in words and name.removesuffix("_test") not in words:
                unknown[mutant["room"]].add(name)
    return unknown


def check_list(mutants):
    """Prints what does not fit; whether everything does."""
    _, stale = edits_of(mutants)
    for mutant in mutants:
        if mutant["id"] in stale:
            print(f"tools/mutants/{mutant['room']}.toml: mutant {mutant['id']} is stale: "
                  f"{stale[mutant['id']]}")
    if stale:
        print("Adapt these entries to the changed code, or delete those whose code is gone.")
    unknown = unknown_tests(mutants)
    for room, names in unknown.items():
        print(f"tools/mutants/{room}.toml: no test program is called {', '.join(sorted(names))}")
    return not stale and not unknown


def mutated(text, path, replacements):
    """The text of a file with its replacements and the include of the switch."""
    for begin, end, into, _ in sorted(replacements, reverse=True):
        text = text[:begin] + into + text[end:]
    include = '#include "base/mutant.h"\n'
    if path.suffix == ".h" and "#pragma once\n" in text:
        return text.replace("#pragma once\n", "#pragma once\n" + include, 1)
    return include + text


def write_if_changed(path, content):
    """Keeps the time stamp of a file that is as it should be, so that it is not compiled again."""
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def make_copy(mutants):
    """Brings the scratch copy up to date; the stale mutants by id."""
    edits, stale = edits_of(mutants)
    listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT,
                            check=True, capture_output=True).stdout.decode().split("\0")
    kept = {"base/mutant.h"}
    for name in filter(None, listed):
        source = ROOT / name
        if not source.is_file():
            continue
        kept.add(name)
        content = source.read_bytes()
        replacements = [edit for edit in edits.get(name, []) if edit[3] not in stale]
        if replacements:
            content = mutated(content.decode(), source, replacements).encode()
        write_if_changed(COPY / name, content)
        shutil.copymode(source, COPY / name)
    write_if_changed(COPY / "base" / "mutant.h", HEADER.encode())
    for path in list(COPY.rglob("*")):
        relative = path.relative_to(COPY)
        if relative.parts[0] != "build" and path.is_file() and str(relative) not in kept:
            path.unlink()
    return stale


def build(tests, jobs):
    """Compiles the test programs in the scratch copy."""
    # Tests read their files from the tree itself, so ccache knows most of their objects already.
    subprocess.run(["cmake", "--preset", "release", "-DTANDEM_CUDA=OFF",
                    f"-DTANDEM_TEST_ROOT={ROOT}"], cwd=COPY, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", str(BUILD), "-j", str(jobs), "--target", *tests],
                   cwd=COPY, check=True)


def commands(tests):
    """How ctest runs each test: its command and its working directory."""
    shown = subprocess.run(["ctest", "--show-only=json-v1"], cwd=BUILD, check=True,
                           capture_output=True).stdout
    found = {}
    for test in json.loads(shown)["tests"]:
        if test["name"] not in tests:
            continue
        properties = {entry["name"]: entry["value"] for entry in test.get("properties", [])}
        found[test["name"]] = (test["command"], properties.get("WORKING_DIRECTORY", str(BUILD)))
    missing = set(tests) - set(found)
    if missing:
        raise ListError(f"ctest does not know {sorted(missing)}")
    return found


class Outcome:
    """How one run of one test program ended."""

    def __init__(self, status, output, seconds):
        self.passed = status == 0
        self.seconds = seconds
        failed = re.findall(r"^\[  FAILED  \] ([\w./]+)", output, re.M)
        begun = re.findall(r"^\[ RUN      \] ([\w./]+)", output, re.M)
        self.test = failed[0] if failed else begun[-1] if begun else "the program"
        if status is None:
            self.how = "exceeds its time limit"
        elif status < 0:
            self.how = f"dies of signal {-status}"
        else:
            self.how = "fails"


def run_test(command, directory, mutant, limit, only=None):
    """Runs a test program with a mutant (0: none)."""
    environment = dict(os.environ, TANDEM_MUTANT=str(mutant), GTEST_FAIL_FAST="1",
                       GTEST_BREAK_ON_FAILURE="0")
    arguments = list(command)
    if only:
        arguments.append(f"--gtest_filter={only}")
    begin = time.monotonic()
    process = subprocess.Popen(arguments, cwd=directory, env=environment, text=True,
                               errors="replace", stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, start_new_session=True)
    try:
        output, _ = process.communicate(timeout=limit)
        status = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        output, _ = process.communicate()
        status = None
    return Outcome(status, output, time.monotonic() - begin)


def baselines(tests, limit):
    """Seconds of each program without a mutant. One that fails three times is left out."""
    seconds = {}
    for name, (command, directory) in sorted(tests.items()):
        for _ in range(3):
            outcome = run_test(command, directory, 0, limit)
            if outcome.passed:
                seconds[name] = outcome.seconds
                break
            print(f"without a mutant {name} {outcome.how}: {outcome.test}", flush=True)
        else:
            print(f"{name} is left out")
    return seconds


def try_mutant(mutant, tests, seconds):
    """Runs the tests of a mutant until one notices it; its result."""
    result = {key: mutant[key] for key in ("id", "room", "file", "what")}
    result["result"] = "survived"
    begin = time.monotonic()
    for name in mutant["tests"]:
        if name not in seconds:
            continue
        command, directory = tests[name]
        limit = 15 + 6 * seconds[name]
        outcome = run_test(command, directory, mutant["id"], limit)
        if outcome.passed:
            continue
        # A test that fails without the mutant as well says nothing about the mutant.
        if outcome.test != "the program":
            again = run_test(command, directory, 0, limit, only=outcome.test)
            if not again.passed:
                outcome = run_test(command, directory, mutant["id"], limit)
                if outcome.passed:
                    continue
        result["result"] = "killed"
        result["by"] = f"{name}: {outcome.test} {outcome.how}"
        break
    result["seconds"] = round(time.monotonic() - begin, 1)
    return result


def report(results, least):
    """Prints the table of rooms and the survivors; whether every room has the least rate."""
    print(f"\n{'room':12} {'mutants':>8} {'killed':>8} {'survived':>9} {'equivalent':>11} "
          f"{'stale':>6} {'rate':>6}")
    enough = True
    rooms = sorted({result["room"] for result in results})
    for room in rooms + ["all"]:
        count = collections.Counter(result["result"] for result in results
                                    if room in (result["room"], "all"))
        judged = count["killed"] + count["survived"]
        rate = count["killed"] / judged if judged else 1.0
        enough = enough and rate >= least
        print(f"{room:12} {sum(count.values()):8} {count['killed']:8} {count['survived']:9} "
              f"{count['equivalent']:11} {count['stale']:6} {rate:6.1%}")
    for result in results:
        if result["result"] in ("survived", "stale"):
            print(f"{result['result']}: {result['room']} {result['id']}, {result['file']}: "
                  f"{result['what']}")
    return enough


def run(mutants, rooms, arguments):
    """Builds and runs the mutants; the exit status."""
    stale = make_copy(load(rooms))
    chosen = [mutant for mutant in mutants if mutant["id"] not in stale]
    live = [mutant for mutant in chosen if "equivalent" not in mutant]
    names = sorted({name for mutant in live for name in mutant["tests"]})
    if not arguments.no_build:
        build(names, arguments.jobs)
    tests = commands(names)
    seconds = baselines(tests, arguments.limit)
    results = []
    for mutant in mutants:
        if mutant["id"] in stale or "equivalent" in mutant:
            result = {key: mutant[key] for key in ("id", "room", "file", "what")}
            result["result"] = "stale" if mutant["id"] in stale else "equivalent"
            result["why"] = stale.get(mutant["id"], mutant.get("equivalent"))
            results.append(result)
    with concurrent.futures.ThreadPoolExecutor(arguments.parallel) as pool:
        futures = [pool.submit(try_mutant, mutant, tests, seconds) for mutant in live]
        for done, future in enumerate(concurrent.futures.as_completed(futures), start=1):
            result = future.result()
            results.append(result)
            print(f"[{done}/{len(live)}] {result['id']} {result['result']} "
                  f"{result.get('by', '')} ({result['seconds']} s)", flush=True)
    results.sort(key=lambda result: result["id"])
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    enough = report(results, arguments.least)
    print(f"written to {arguments.json}")
    return 0 if enough else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--room", default="", help="rooms, separated by commas (default: all)")
    parser.add_argument("--id", default="", help="mutants, separated by commas")
    parser.add_argument("--check-list", action="store_true",
                        help="only check that every entry still applies to the tree")
    parser.add_argument("--no-build", action="store_true", help="take the programs as they are")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="of the build")
    parser.add_argument("--parallel", type=int, default=1, help="mutants that run at a time")
    parser.add_argument("--limit", type=float, default=600,
                        help="seconds of a program without a mutant")
    parser.add_argument("--least", type=float, default=0.95,
                        help="kill rate below which the exit status is 1")
    parser.add_argument("--json", type=pathlib.Path, default=WORK / "result.json")
    arguments = parser.parse_args()
    try:
        rooms = [room for room in arguments.room.split(",") if room]
        mutants = load(rooms)
        if arguments.check_list:
            return 0 if check_list(mutants) else 1
        wanted = {int(number) for number in arguments.id.split(",") if number}
        if wanted:
            mutants = [mutant for mutant in mutants if mutant["id"] in wanted]
        return run(mutants, rooms, arguments)
    except ListError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
