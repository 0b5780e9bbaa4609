#!/usr/bin/env python3
"""Writes manual pages and the completion for bash from --help of the built program.

  make_manual.py --tandem build/release/bin/tandem --output FOLDER

FOLDER gets man/tandem.1, man/tandem-COMMAND.1 for each command, and completion/tandem. The same program gives the same bytes:
the date on the pages is that of SOURCE_DATE_EPOCH, or none.
"""
import argparse
import datetime
import os
import pathlib
import subprocess

import help_text

# A function of bash for all commands: the words before the cursor lead to the command, whose options and commands it offers.
_COMPLETION = """# Completion of tandem for bash, made from tandem --help.
_tandem() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command=tandem word
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case " ${_tandem_commands[$command]} " in
      *" $word "*) command="$command $word" ;;
    esac
  done
  local choices=${_tandem_choices["$command $previous"]}
  if [[ $previous == = ]]; then choices=${_tandem_choices["$command ${COMP_WORDS[COMP_CWORD-2]}"]}; fi
  if [[ $current == = ]]; then choices=${_tandem_choices["$command $previous"]} current=""; fi
  if [[ -n $choices ]]; then
    COMPREPLY=($(compgen -W "$choices" -- "$current"))
  elif [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "${_tandem_options[$command]}" -- "$current"))
  elif [[ $previous != -* && -n ${_tandem_commands[$command]} ]]; then
    COMPREPLY=($(compgen -W "${_tandem_commands[$command]}" -- "$current"))
  fi
}
complete -o default -F _tandem tandem
"""


def quoted(text):
    """`text` as roff shows it literally."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def page(command, others, version, date):
    """A manual page in section 1."""
    name = "-".join(("tandem", *command.path))
    lines = [f'.TH {name.upper()} 1 "{date}" "{version}" "Tandem"', ".SH NAME",
             quoted(f"{name} - {command.summary.rstrip('.')}"), ".SH SYNOPSIS", f".B {quoted(command.usage)}"]
    for title, entries in command.sections:
        lines.append(f'.SH "{title.upper()}"')
        for entry in entries:
            names = quoted(", ".join(entry.names))
            lines += [".TP", f"\\fB{names}\\fR {quoted(entry.value)}".rstrip(), quoted(entry.text)]
    if command.footer:
        lines += [".SH NOTES", ".nf", *(quoted(line) for line in command.footer), ".fi"]
    lines += [".SH SEE ALSO", ", ".join(f"{quoted(other)}(1)" for other in others)]
    return "\n".join(lines) + "\n"


def completion(commands):
    def table(name, rows):
        lines = [f'  ["{key}"]="{value}"' for key, value in rows if value]
        return "\n".join([f"declare -gA {name}=(", *lines, ")"])

    by_command, options, choices = [], [], []
    for command in commands:
        key = " ".join(("tandem", *command.path))
        by_command.append((key, " ".join(entry.names[0] for entry in command.subcommands())))
        options.append((key, " ".join(name for entry in command.options() for name in entry.names)))
        choices += [(f"{key} {name}", " ".join(entry.choices()))
                    for entry in command.options() for name in entry.names]
    return "\n".join([table("_tandem_commands", by_command), table("_tandem_options", options),
                      table("_tandem_choices", choices), _COMPLETION])


def write(output, commands, version, date):
    (output / "man").mkdir(parents=True, exist_ok=True)
    (output / "completion").mkdir(parents=True, exist_ok=True)
    names = ["-".join(("tandem", *command.path)) for command in commands]
    for name, command in zip(names, commands):
        others = [other for other in names if other != name]
        (output / "man" / f"{name}.1").write_text(page(command, others, version, date))
    (output / "completion" / "tandem").write_text(completion(commands))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    date = datetime.datetime.fromtimestamp(int(epoch), datetime.timezone.utc).date().isoformat() if epoch else ""
    version = subprocess.run([arguments.tandem, "version"], capture_output=True, text=True, check=True,
                             timeout=60).stdout.splitlines()[0]
    write(arguments.output, help_text.read_all(arguments.tandem), version, date)


if __name__ == "__main__":
    main()
