#!/usr/bin/env bash
# tools/demo.sh DEVICE JOBS: what `make demo` does, in three steps that say what is left and, when one
# fails, what to do.
set -uo pipefail
cd "$(dirname "$0")/.."
device=${1:-cpu}
jobs=${2:-$(nproc)}
goal="make demo"
steps=3
readonly device jobs goal steps
source tools/build_steps.sh

install_packages
build_tandem

say "step 3 of 3: serving models/sample on $device and asking it (about 10 seconds)"
build/release/bin/tandem demo --model models/sample --device "$device" ||
  fail "step 3 of 3, the demo" \
    "The first line above that names an error or [FAILED] says what did not hold." \
    "Devices of this build: build/release/bin/tandem version"
printf '\n   make chat     fetches a small chat model and lets you talk to it\n'
