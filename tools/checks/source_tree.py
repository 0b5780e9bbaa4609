"""The C++ files of the tree: their rooms, outlines and includes."""
import concurrent.futures
import os
import pathlib
import re
import subprocess

import cpp_outline

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SUFFIXES = (".h", ".cc", ".cu", ".cuh")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+[<"]([^">]+)[">]', re.MULTILINE)


class SourceTree:
    """Files are paths relative to `root`; a file's room is its first folder."""

    def __init__(self, root=ROOT, files=None):
        self.root = pathlib.Path(root)
        self.files = sorted(files if files is not None else _files_of(self.root))
        self._outlines = None

    def text(self, file):
        return (self.root / file).read_text(errors="replace")

    def outlines(self):
        """The Outline of every file. The files are read by all cores, once."""
        if self._outlines is None:
            work = [(file, str(self.root / file)) for file in self.files]
            workers = min(os.cpu_count() or 1, 8, max(1, len(work) // 50))
            with concurrent.futures.ProcessPoolExecutor(workers) as pool:
                self._outlines = dict(zip(self.files, pool.map(_outline, work, chunksize=32)))
        return self._outlines

    def includes(self):
        """For every file, the files of the tree that it includes itself."""
        known = set(self.files)
        found = {}
        for file in self.files:
            folder = os.path.dirname(file)
            edges = set()
            for name in _INCLUDE.findall(self.text(file)):
                beside = os.path.normpath(os.path.join(folder, name))
                edges |= {path for path in (name, beside) if path in known}
            found[file] = edges
        return found


def room(file):
    return file.split("/")[0]


def _files_of(root):
    """What git tracks, and what it would track after `git add .`; files that were deleted are left out."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--",
         *("*" + suffix for suffix in SUFFIXES)],
        cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [file for file in set(listed.split("\0")) if file and (root / file).exists()]


def _outline(work):
    file, path = work
    with open(path, errors="replace") as opened:
        return cpp_outline.outline(opened.read(), file)
