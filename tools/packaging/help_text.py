"""Reads what `tandem COMMAND --help` prints."""
import dataclasses
import re
import subprocess

TEXT_COLUMN = 30  # where the texts of options begin


@dataclasses.dataclass
class Entry:
    """An option, a positional argument or a subcommand."""
    names: list  # "-h", "--help"; one for others
    value: str  # what stands behind the name, as "TEXT=127.0.0.1"; "" for a switch
    text: str

    def choices(self):
        """The values that it takes, where --help lists them."""
        listed = re.search(r"\{([^}]*)\}", self.value)
        return listed.group(1).split(",") if listed else []


@dataclasses.dataclass
class Command:
    path: tuple  # ("inspect", "kv"); () for the program
    summary: str
    usage: str
    sections: list  # (title, entries) in the order of --help
    footer: list  # lines

    def entries(self, title):
        return [entry for name, entries in self.sections if name == title for entry in entries]

    def options(self):
        return [entry for name, entries in self.sections if name not in ("Subcommands", "Positionals")
                for entry in entries]

    def subcommands(self):
        return self.entries("Subcommands")


def _entry(left, text):
    names, _, value = left.partition(" ")
    return Entry(names=names.split(","), value=value.strip(), text=text)


def parse(path, text):
    """What `tandem PATH --help` printed, as a Command. ValueError when it has another form."""
    lines = text.splitlines()
    start = next((index for index, line in enumerate(lines) if line.startswith("Usage: ")), None)
    if start is None:
        raise ValueError(f"tandem {' '.join(path)} --help has no line that begins with Usage:")
    command = Command(path, " ".join(lines[:start]).strip(), lines[start].removeprefix("Usage: "), [], [])
    entries = None  # of the section that is being read
    for index in range(start + 1, len(lines)):
        line = lines[index]
        following = lines[index + 1] if index + 1 < len(lines) else ""
        # A footer may have lines of this form as well, but no options below them.
        has_entries = re.match(r"  \S" if line in ("Subcommands:", "Positionals:") else "  -", following)
        if re.match(r"\S.*:$", line) and has_entries:
            entries = []
            command.sections.append((line[:-1], entries))
        elif entries is not None and re.match(r"  \S", line):
            # What is too long for its column stands alone, and its text on the next line.
            is_alone = following.startswith(" " * TEXT_COLUMN) and "  " not in line.strip()
            left, right = (line, "") if is_alone else (line[:TEXT_COLUMN], line[TEXT_COLUMN:])
            entries.append(_entry(left.strip(), right.strip()))
        elif entries and line.startswith(" " * TEXT_COLUMN):
            entries[-1].text = f"{entries[-1].text} {line.strip()}".strip()
        elif line.strip():
            command.footer = lines[index:]
            break
    return command


def read_all(tandem, path=()):
    """The commands of the program, each with those below it behind it."""
    done = subprocess.run([tandem, *path, "--help"], capture_output=True, text=True, check=True, timeout=60)
    command = parse(path, done.stdout)
    found = [command]
    for entry in command.subcommands():
        found += read_all(tandem, (*path, entry.names[0]))
    return found
