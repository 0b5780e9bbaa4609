#!/usr/bin/env python3
"""What tools/packaging makes: manual pages and completion of the built program, and lists of Debian packages.

  packaging_test.py build/release/bin/tandem
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PACKAGING = pathlib.Path(__file__).resolve().parents[2] / "tools" / "packaging"
sys.path.insert(0, str(PACKAGING))

import help_text  # noqa: E402
import make_flags_page  # noqa: E402

TANDEM = sys.argv.pop() if len(sys.argv) > 1 else None

STATUS = """Package: libfoo1
Status: install ok installed
Maintainer: A Person <person@example.org>
Architecture: amd64
Source: foo (1.0-1)
Version: 1:1.0+b1
Description: a library
 with more: lines

Package: gone
Status: deinstall ok config-files
Architecture: all
Version: 2

Package: base
Status: install ok installed
Architecture: all
Version: 3
"""


def run(script, *arguments, **environment):
    return subprocess.run([sys.executable, str(PACKAGING / script), *arguments], capture_output=True, text=True,
                          check=True, timeout=60, env=os.environ | environment).stdout


class FlagsPage(unittest.TestCase):
    def flag(self, value, names=("--x",), text="what for"):
        return make_flags_page.flag_of(help_text.Entry(list(names), value, text))

    def test_defaults_and_values(self):
        size = self.flag("UINT:SIZE [b, kb(=1024b), ...]=67108864")
        self.assertEqual((size.default, size.values, size.unit), ("64 MiB", "size", "bytes"))
        self.assertEqual(self.flag("UINT:SIZE [b, kb(=1024b), ...]").default, "")
        between = self.flag("INT:INT in [1 - 64]=1", ["--http-idle-seconds"])
        self.assertEqual((between.default, between.values, between.unit), ("1", "whole number from 1 to 64", "s"))
        self.assertEqual(self.flag("TEXT:{on,off}=on").values, "`on`, `off`")
        several = self.flag("UINT=[1,2,3] ...")
        self.assertEqual((several.default, several.meaning), ("[1,2,3]", "what for; may be repeated"))
        self.assertEqual(self.flag("TEXT ... REQUIRED").default, "required")
        self.assertEqual(self.flag("Excludes: --y").meaning, "what for; not with `--y`")
        self.assertEqual(self.flag("").values, "switch")

    def test_a_row_is_one_line_of_a_table(self):
        row = make_flags_page.row(self.flag("TEXT:none|POLICY:RATIO=none", text="a | b <c> *d"))
        self.assertEqual(row, "| `--x` | `none` |  | `none\\|POLICY:RATIO` | a \\| b &lt;c> \\*d |")


class HelpText(unittest.TestCase):
    def test_options_of_all_forms(self):
        text = ("Does something\nUsage: tandem x [OPTIONS] [id]\n\nPositionals:\n  id TEXT                     which one\n\nOptions:\n"
                "  -h,--help                   Print this\n  --mode TEXT:{a,b}=a         how\n"
                "  --probe TEXT:{first,last}=a that fits just so\n"
                "  --very-long-option INT:INT in [1 - 64]=1\n                              what for\n\n\n"
                "Other things:\n  --json                      print JSON\n\nExamples:\n  tandem x --json\n")
        command = help_text.parse(("x",), text)
        self.assertEqual(command.summary, "Does something")
        self.assertEqual([entry.names for entry in command.options()],
                         [["-h", "--help"], ["--mode"], ["--probe"], ["--very-long-option"], ["--json"]])
        self.assertEqual(command.options()[1].choices(), ["a", "b"])
        self.assertEqual(command.options()[2].text, "that fits just so")
        self.assertEqual(command.options()[3].text, "what for")
        self.assertEqual(command.footer, ["Examples:", "  tandem x --json"])

    def test_another_form_is_refused(self):
        with self.assertRaises(ValueError):
            help_text.parse((), "no usage here")


class Manual(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.output = pathlib.Path(cls.folder.name)
        run("make_manual.py", "--tandem", TANDEM, "--output", cls.folder.name, SOURCE_DATE_EPOCH="86400")
        cls.commands = help_text.read_all(TANDEM)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_every_command_has_a_page_with_every_option(self):
        self.assertGreater(len(self.commands), 15)
        for command in self.commands:
            text = (self.output / "man" / f"{'-'.join(('tandem', *command.path))}.1").read_text()
            self.assertIn("1970-01-02", text)
            self.assertGreater(len(command.options()), 0)
            for entry in command.options():
                self.assertIn(", ".join(entry.names).replace("-", "\\-"), text)
                self.assertNotEqual(entry.text, "", f"{command.path} {entry.names}")

    @unittest.skipIf(shutil.which("groff") is None, "groff is not here")
    def test_groff_finds_no_fault(self):
        pages = sorted(str(path) for path in (self.output / "man").iterdir())
        done = subprocess.run(["groff", "-man", "-ww", "-z", *pages], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stderr, "")

    def complete(self, *words):
        quoted = " ".join(f"'{word}'" for word in words)
        script = (f"source {self.output}/completion/tandem; COMP_WORDS=({quoted}); "
                  f"COMP_CWORD={len(words) - 1}; _tandem; echo \"${{COMPREPLY[@]}}\"")
        return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True,
                              timeout=60).stdout.split()

    def test_bash_completes_commands_options_and_values(self):
        self.assertEqual(self.complete("tandem", "rou"), ["router"])
        self.assertEqual(self.complete("tandem", "inspect", ""), ["kv"])
        self.assertEqual(self.complete("tandem", "worker", "--ro"), ["--role", "--router"])
        self.assertEqual(self.complete("tandem", "worker", "--role", ""), ["prefill", "decode", "unified"])
        self.assertEqual(self.complete("tandem", "worker", "--role", "=", "pre"), ["prefill"])
        self.assertEqual(self.complete("tandem", "worker", "--role", "="), ["prefill", "decode", "unified"])
        self.assertEqual(self.complete("tandem", "worker", "--model", "/e"), [], "files are bash's")

    def test_the_same_program_gives_the_same_bytes(self):
        with tempfile.TemporaryDirectory() as again:
            run("make_manual.py", "--tandem", TANDEM, "--output", again, SOURCE_DATE_EPOCH="86400")
            for path in self.output.rglob("*.1"):
                self.assertEqual(path.read_bytes(), (pathlib.Path(again) / "man" / path.name).read_bytes())


class Sbom(unittest.TestCase):
    def list(self, text):
        with tempfile.NamedTemporaryFile("w") as status:
            status.write(text)
            status.flush()
            return run("sbom.py", "--status", status.name, "--name", "image", SOURCE_DATE_EPOCH="86400")

    def test_installed_packages_are_listed_by_name(self):
        document = json.loads(self.list(STATUS))
        self.assertEqual(document["spdxVersion"], "SPDX-2.3")
        self.assertEqual(document["creationInfo"]["created"], "1970-01-02T00:00:00Z")
        self.assertEqual([package["name"] for package in document["packages"]], ["base", "libfoo1"])
        self.assertEqual(document["documentDescribes"], ["SPDXRef-base-all", "SPDXRef-libfoo1-amd64"])
        library = document["packages"][1]
        self.assertEqual(library["versionInfo"], "1:1.0+b1")
        self.assertEqual(library["externalRefs"][0]["referenceLocator"],
                         "pkg:deb/debian/libfoo1@1%3A1.0%2Bb1?arch=amd64")
        self.assertIn("foo (1.0-1)", library["sourceInfo"])

    def test_the_same_packages_give_the_same_bytes(self):
        self.assertEqual(self.list(STATUS), self.list(STATUS))

    def test_no_package_is_an_error(self):
        with self.assertRaises(subprocess.CalledProcessError):
            self.list("")


if __name__ == "__main__":
    if TANDEM is None:
        sys.exit("packaging_test: give the built program")
    unittest.main()
