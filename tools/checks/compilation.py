"""Runs a clang tool over the translation units of the tree, and remembers which ones it found clean."""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess

PRESET = "thread-safety"
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+[<"]([^">]+)[">]', re.MULTILINE)


class Unavailable(Exception):
    """A check that says nothing about the tree, because its tool has another version than it is written for."""


def run(command, root):
    """The exit status of a command and all that it wrote."""
    try:
        done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except FileNotFoundError:
        return 127, f"{command[0]} is not installed: run tools/install_deps.sh core check"
    return done.returncode, done.stdout


def configured(root):
    """The Compilation of cmake --preset thread-safety, with generated headers; or None and what went wrong."""
    build = root / "build" / PRESET
    status, output = run(["cmake", "--preset", PRESET], root)
    if status == 0:
        headers = [header for proto in sorted((root / "proto" / "tandem" / "v1").glob("*.proto"))
                   for header in _generated_headers(proto)]
        status, output = run(["cmake", "--build", str(build), "--target", *headers], root)
    if status != 0:
        return None, output[-3000:]
    return Compilation(root, build, _read_commands(root, build)), ""


def _generated_headers(proto):
    """What is generated of a .proto file, below the build folder; only a service has stubs of gRPC."""
    has_service = any(line.startswith("service ") for line in proto.read_text().splitlines())
    return [f"proto/tandem/v1/{proto.stem}{suffix}"
            for suffix in ([".pb.h", ".grpc.pb.h"] if has_service else [".pb.h"])]


def _read_commands(root, build):
    """One command per source of the tree; a source of several targets is checked as in the first."""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        if path.is_relative_to(root) and not path.is_relative_to(root / "build"):
            words = shlex.split(entry["command"])
            output = words.index("-o")
            commands.setdefault(str(path.relative_to(root)),
                                [word for word in words[:output] + words[output + 2:] if word != "-c"])
    return commands


class Compilation:
    """Sources with the command that compiles each, and what they include of the tree."""

    def __init__(self, root, build, commands):
        self.root = pathlib.Path(root)
        self.build = pathlib.Path(build)
        self._commands = commands
        self._texts = {}
        self._includes = {}

    def sources(self):
        return sorted(self._commands)

    def command(self, source):
        return self._commands[source]

    def _text(self, file):
        if file not in self._texts:
            self._texts[file] = (self.root / file).read_text(errors="replace")
        return self._texts[file]

    def _included_by(self, file):
        if file not in self._includes:
            found = set()
            for name in _INCLUDE.findall(self._text(file)):
                for folder in ("", os.path.dirname(file), "tests/simt/include"):
                    path = os.path.normpath(os.path.join(folder, name))
                    if (self.root / path).is_file():
                        found.add(path)
            self._includes[file] = found
        return self._includes[file]

    def files_of(self, source):
        """The source and every file of the tree that it includes, directly or through others."""
        reached, left = {source}, [source]
        while left:
            new = self._included_by(left.pop()) - reached
            reached |= new
            left += new
        return reached

    def mentions(self, source, pattern):
        """Whether the source, or a file of the tree that it includes itself, matches the compiled pattern."""
        return any(pattern.search(self._text(file)) for file in {source} | self._included_by(source))

    def _key(self, source, command, salt):
        digest = hashlib.sha256("\0".join([*command, salt]).encode())
        for file in sorted(self.files_of(source)):
            digest.update(f"\0{file}\0".encode() + self._text(file).encode())
        return digest.hexdigest()

    def check(self, tool, commands, jobs, salt=""):
        """Runs commands[source] for every source; the outputs of those that fail, and how many ran.

        A source that passed before is not run again while its command, it and what it includes are the same.
        """
        memory = self.build / f"{tool}.passed"
        passed = set(memory.read_text().split()) if memory.exists() else set()
        keys = {source: self._key(source, command, salt) for source, command in commands.items()}
        todo = [source for source in sorted(commands) if keys[source] not in passed]
        problems = []
        with concurrent.futures.ThreadPoolExecutor(jobs or os.cpu_count()) as pool, memory.open("a") as log:
            for source, (status, output) in zip(
                    todo, pool.map(lambda one: run(commands[one], self.build), todo)):
                if status == 0:
                    log.write(keys[source] + "\n")
                    log.flush()  # what passed stays known when the rest is interrupted
                else:
                    problems.append(output.strip() or f"{source}: {tool} ended with status {status}")
        return problems, len(todo)
