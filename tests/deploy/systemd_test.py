#!/usr/bin/env python3
"""The units of deploy/systemd are as closed as they can be, and their example flags are flags of the program.

  systemd_test.py build/release/bin/tandem
"""
import configparser
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import program_flags

SYSTEMD = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "systemd"
UNITS = ("tandem-router.service", "tandem-worker@.service")
MOST_EXPOSURE = 2.0  # of 10, as `systemd-analyze security` counts
TANDEM = sys.argv.pop() if len(sys.argv) > 1 else None


def read_ini(path):
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(path.read_text())
    return parser


def read_unit(name):
    """Key -> the values of all its lines."""
    found = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", (SYSTEMD / name).read_text(), re.MULTILINE):
        found.setdefault(key, []).append(value)
    return found


class Units(unittest.TestCase):
    @unittest.skipIf(shutil.which("systemd-analyze") is None, "systemd-analyze is not here")
    def test_units_are_closed(self):
        for unit in UNITS:
            done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", str(SYSTEMD / unit)],
                                  capture_output=True, text=True, timeout=60)
            level = re.search(r"Overall exposure level for .*: ([\d.]+)", done.stdout)
            self.assertIsNotNone(level, done.stdout + done.stderr)
            self.assertLessEqual(float(level.group(1)), MOST_EXPOSURE, unit)

    @unittest.skipIf(shutil.which("systemd-analyze") is None, "systemd-analyze is not here")
    def test_systemd_understands_every_line(self):
        with tempfile.TemporaryDirectory() as folder:
            for unit in UNITS:  # with a program that is there, on this machine
                text = (SYSTEMD / unit).read_text().replace("/usr/bin/tandem", "/bin/true")
                pathlib.Path(folder, unit).write_text(text)
            for unit in UNITS:
                path = f"{folder}/{unit}".replace("@.", "@decode.")
                done = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True,
                                      timeout=60)
                said = [line for line in done.stderr.splitlines() if folder in line]
                self.assertEqual(said, [])

    def test_a_service_has_time_to_drain(self):
        for unit, config in zip(UNITS, ("router.ini", "worker-decode.ini")):
            [section] = [read_ini(SYSTEMD / config)[name] for name in read_ini(SYSTEMD / config).sections()]
            self.assertGreater(int(read_unit(unit)["TimeoutStopSec"][0]), int(section["drain-seconds"]))

    def test_flags_are_known(self):
        known = program_flags.known_flags(TANDEM)
        for unit in UNITS:
            command, *arguments = read_unit(unit)["ExecStart"][0].removeprefix("/usr/bin/tandem ").split()
            for flag in (one for one in arguments if one.startswith("--")):
                self.assertIn(flag, known[command])
        for path in SYSTEMD.glob("*.ini"):
            parser = read_ini(path)
            command = path.stem.partition("-")[0]
            self.assertEqual(parser.sections(), [command])
            # Those that are commented out are meant to be used, too.
            suggested = re.findall(r"^# ([a-z-]+) = ", path.read_text(), re.MULTILINE)
            for key in [*parser[command], *suggested]:
                self.assertIn(f"--{key}", known[command], path.name)

    def test_a_worker_is_named_after_its_machine(self):
        self.assertIn("--name %H-%i", read_unit(UNITS[1])["ExecStart"][0])


if __name__ == "__main__":
    if TANDEM is None:
        sys.exit("systemd_test: give the built program")
    unittest.main()
