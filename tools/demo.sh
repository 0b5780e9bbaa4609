#!/usr/bin/env bash
# tools/demo.sh DEVICE JOBS: what `make demo` does, in three steps that say what is left and, when one
# fails, what to do. It builds the program `tandem` alone, in the folder that `make test` continues.
set -uo pipefail
cd "$(dirname "$0")/.."
device=${1:-cpu}
jobs=${2:-$(nproc)}
# A folder that is configured already keeps its tests and its choice of CUDA.
configure=(cmake -S . -B build/release)
if [[ ! -f build/release/build.ninja ]]; then configure=(cmake --preset demo); fi
readonly device jobs configure
readonly MILLISECONDS_PER_STEP=1500  # of one core, on average, with nothing in the compiler cache

say() { printf '\n== %s\n' "$*"; }

fail() {
  printf '\n== make demo stopped at %s\n' "$1" >&2
  shift
  printf '   %s\n' "$@" >&2
  exit 1
}

say "step 1 of 3: packages (one to two minutes when most are missing)"
tools/install_deps.sh core || fail "step 1 of 3, the packages" \
  "Mend what install_deps says above, then run make demo again: it continues where it stopped."

say "step 2 of 3: building tandem"
configured=$("${configure[@]}" 2>&1) || {
  printf '%s\n' "$configured" >&2
  fail "step 2 of 3, configuring" "If the folder build/release is of another machine or tree, remove it:" \
    "make clean demo"
}
grep -E '^-- CUDA' <<<"$configured"
steps=$(ninja -C build/release -n tandem | grep -c '^\[')
minutes=$(((steps * MILLISECONDS_PER_STEP / jobs + 59999) / 60000))
if ((steps > 0)); then
  echo "   $steps files to build with $jobs jobs: about $minutes minutes, less with a warm compiler cache"
fi
NINJA_STATUS='[%f of %t, %p, %e s] ' ninja -C build/release -j "$jobs" tandem ||
  fail "step 2 of 3, building" \
    "Was a compiler killed, memory is short: make demo JOBS=1. It continues where it stopped." \
    "Otherwise the first line with \"error:\" above says what is wrong."

say "step 3 of 3: serving models/sample on $device and asking it (about 10 seconds)"
build/release/bin/tandem demo --model models/sample --device "$device" ||
  fail "step 3 of 3, the demo" \
    "The first line above that names an error or [FAILED] says what did not hold." \
    "Devices of this build: build/release/bin/tandem version"
