#!/usr/bin/env python3
"""The program was built with what cmake/hardening.cmake asks for.

  hardened_binary_test.py build/release/bin/tandem      needs readelf
"""
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import unittest

PROGRAM = sys.argv.pop() if len(sys.argv) > 1 else None
ENDBR64 = b"\xf3\x0f\x1e\xfa"  # where an indirect jump may land


def read(*what):
    return subprocess.run(["readelf", "--wide", *what, PROGRAM], check=True, stdout=subprocess.PIPE, text=True).stdout


class HardenedBinary(unittest.TestCase):
    def find(self, pattern, *what):
        self.assertTrue(re.search(pattern, read(*what)), f"readelf {' '.join(what)} shows no {pattern}")

    def test_its_addresses_differ_from_run_to_run(self):
        self.find(r"Type:\s+DYN", "--file-header")
        self.find(r"FLAGS_1.*\bPIE\b", "--dynamic")

    def test_tables_of_functions_are_read_only_once_it_runs(self):
        self.find("GNU_RELRO", "--program-headers")
        self.find(r"BIND_NOW|FLAGS.*\bNOW\b", "--dynamic")

    def test_no_segment_can_be_written_and_executed(self):
        segments = re.findall(r"^  (LOAD|GNU_STACK) .* ([R ][W ][E ]) 0x", read("--program-headers"), re.MULTILINE)
        self.assertIn("GNU_STACK", [kind for kind, _ in segments])
        self.assertEqual([flags for _, flags in segments if "W" in flags and "E" in flags], [])

    def test_return_addresses_are_guarded(self):
        self.find("__stack_chk_fail", "--dyn-syms")

    def test_copies_of_the_c_library_are_checked(self):
        self.find(r"__(memcpy|read|memset|snprintf|recv|poll|memmove)_chk", "--dyn-syms")

    @unittest.skipUnless(platform.machine() == "x86_64", "another processor")
    def test_indirect_jumps_land_at_marked_places(self):
        self.assertGreater(pathlib.Path(PROGRAM).read_bytes().count(ENDBR64), 1000)


if __name__ == "__main__":
    if PROGRAM is None:
        sys.exit("hardened_binary_test: give the built program")
    if shutil.which("readelf") is None:
        print("left out: readelf is not here (package binutils)")
        sys.exit(77)
    unittest.main()
