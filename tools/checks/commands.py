"""The checks that run a tool: each returns its problems and a summary of what it looked at."""
import concurrent.futures
import functools
import os
import re
import shutil
import subprocess
import sys

from compilation import Unavailable, configured, run
from source_tree import ROOT, SourceTree

# The version that Debian 12 has. Other versions of clang-format lay out some lines differently, and others of
# clang-tidy find other things, so that the check would depend on the machine.
PINNED = 14
_MOST_CHANGED = 60  # which take clang-tidy a quarter of an hour on two cores
_MUTEX = re.compile(r"absl/synchronization/|absl/base/thread_annotations\.h|ABSL_GUARDED_BY")


@functools.cache
def _configured():
    return configured(ROOT)


def pinned(tool):
    """The name of `tool` in the pinned version."""
    name = f"{tool}-{PINNED}"
    if shutil.which(name):
        return name
    status, output = run([tool, "--version"], ROOT)
    if status != 0:
        raise FileNotFoundError(output)
    version = re.search(r"version (\d+)", output)
    if version is None or int(version.group(1)) != PINNED:
        raise Unavailable(f"this tree is written for {name}; here is {output.strip().splitlines()[0]}")
    return tool


def layers(_):
    status, output = run(["cmake", "-P", "cmake/check_layers.cmake"], ROOT)
    errors = re.findall(r"^  (\S.*)$", output, re.MULTILINE) or [output]
    return ([] if status == 0 else errors), output.strip().splitlines()[-1].lstrip("- ")


def docs(_):
    status, output = run([sys.executable, "bench/report.py", "--check"], ROOT)
    return ([] if status == 0 else [output.strip()]), "docs/performance.md, docs/routing_results.md, docs/faults.md, docs/observing.md"


def presets(_):
    script = ROOT / "tools" / "check_presets.sh"
    if not script.exists():
        raise Unavailable("tools/check_presets.sh is not in this tree")
    status, output = run([str(script)], ROOT)
    configured_ones = sum(line.startswith("ok ") for line in output.splitlines())
    left_out = [line for line in output.splitlines() if line.startswith("left out ")]
    return ([] if status == 0 else [output.strip()]), "; ".join([f"{configured_ones} configured", *left_out])


def format_check(options):
    try:
        tool = pinned("clang-format")
    except FileNotFoundError as missing:
        return [str(missing)], "cannot run"
    files = SourceTree().files
    return differing(tool, files, ROOT, options.jobs), f"{len(files)} files"


def differing(tool, files, root, jobs=None):
    """The files that clang-format would change, or what it said when it could not read them."""
    parts = [files[start:start + 100] for start in range(0, len(files), 100)]
    with concurrent.futures.ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        done = list(pool.map(lambda part: run([tool, "--dry-run", "-Werror", *part], root), parts))
    lines = [line for _, output in done for line in output.splitlines()]
    differ = sorted({line.split(":")[0] for line in lines if "clang-format-violations" in line})
    return differ or (lines if any(status for status, _ in done) else [])


def format_files():
    """Lays out every file in place; the exit status."""
    try:
        return run([pinned("clang-format"), "-i", *SourceTree().files], ROOT)[0]
    except (Unavailable, FileNotFoundError) as reason:
        print(f"nothing is formatted: {reason}")
        return 1


def thread_safety(options):
    """Where neither a source nor a header that it includes itself has a mutex or an annotation, there is next to nothing
    that this analysis could find: what it guards is private, and a class is declared in a header of its own.

    Of the other sources only changed ones are read, or all with --all: without precompiled headers, to see that every
    file includes what it uses.
    """
    compiled, failure = _configured()
    if failure:
        return [failure], "cannot configure"
    besides = set(compiled.sources() if options.all else _changed_sources(compiled)[0])
    problems, chosen, ran = check_locks(compiled, options.jobs, _version("clang++"), besides)
    return problems, f"{chosen} of {len(compiled.sources())} sources, {chosen - ran} unchanged since they passed"


def check_locks(compiled, jobs, salt="", besides=()):
    """Problems, how many sources have a mutex near or are in `besides`, and how many of them clang had to read."""
    commands = {source: [*compiled.command(source), "-fsyntax-only", "-Wthread-safety", "-Werror"]
                for source in compiled.sources() if source in besides or compiled.mentions(source, _MUTEX)}
    problems, ran = compiled.check("thread-safety", commands, jobs, salt)
    return problems, len(commands), ran


def tidy(options):
    try:
        tool = pinned("clang-tidy")
    except FileNotFoundError as missing:
        return [str(missing)], "cannot run"
    compiled, failure = _configured()
    if failure:
        return [failure], "cannot configure"
    sources, which = compiled.sources(), "all sources"
    if not options.all:
        sources, which = _changed_sources(compiled)
    commands = {source: [tool, "--quiet", "--warnings-as-errors=*", "-p", str(compiled.build),
                         str(compiled.root / source)] for source in sources}
    salt = _version(tool) + (ROOT / ".clang-tidy").read_text()
    problems, ran = compiled.check("tidy", commands, options.jobs, salt)
    return problems, f"{len(sources)} {which}, {len(sources) - ran} unchanged since they passed"


def _version(tool):
    return run([tool, "--version"], ROOT)[1]


def _changed_sources(compiled):
    """The sources that changed, what the program is made of before its tests, and what they are called.

    Of a change to hundreds of files, only the first ones: the others are read by --all.
    """
    changed, since = _changed_files()
    sources = sorted(changed.intersection(compiled.sources()), key=lambda one: (one.startswith("tests/"), one))
    which = f"sources changed since {since}"
    if len(sources) > _MOST_CHANGED:
        which = f"of {len(sources)} {which} (make check-all reads all)"
    return sources[:_MOST_CHANGED], which


def _changed_files():
    """Files that differ from the main branch, or on that branch itself from the last commit but one."""
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True).stdout.split()

    head = git("rev-parse", "HEAD")
    for branch in ("origin/main", "main"):
        base = git("merge-base", branch, "HEAD")
        if base and base != head:
            break
    else:
        base, branch = git("rev-parse", "HEAD~1"), "the commit before"
    return set(git("diff", "--name-only", *base)) | set(git("ls-files", "--others", "--exclude-standard")), branch
