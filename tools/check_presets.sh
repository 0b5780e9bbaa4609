#!/usr/bin/env bash
# tools/check_presets.sh: every configure preset of CMakePresets.json configures, and so does a build
# without gRPC, without tests, and without precompiled headers. Nothing is compiled, and no build folder
# of this tree is touched. A preset whose compiler is not on this machine is named and left out.
set -uo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d "${TMPDIR:-/tmp}/check_presets.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
failed=0

# configures NAME ARG...
configures() {
  local name=$1
  shift
  if cmake "$@" -B "$scratch/build" >"$scratch/log" 2>&1; then
    echo "ok      $name"
  else
    echo "FAILED  $name"
    sed 's/^/        /' "$scratch/log" | grep -A12 "CMake Error" | head -30
    failed=1
  fi
  rm -rf "$scratch/build"
}

# What the preset needs and this machine lacks, or nothing.
missing_for() {
  case $1 in
    asan | tsan | fuzz | thread-safety) command -v clang++ >/dev/null || echo clang ;;
    cuda) [[ -n ${CUDA_HOME:-} || -x /usr/local/cuda/bin/nvcc ]] || command -v nvcc >/dev/null || echo nvcc ;;
  esac
}

presets=$(cmake --list-presets=configure | sed -n 's/^  "\([^"]*\)".*/\1/p')
if [[ -z $presets ]]; then
  echo "check_presets: cmake --list-presets names none: the check looks at the wrong place" >&2
  exit 1
fi
for preset in $presets; do
  missing=$(missing_for "$preset")
  if [[ -n $missing ]]; then
    echo "left out $preset: no $missing here"
  else
    configures "$preset" --preset "$preset"
  fi
done
for option in TANDEM_GRPC TANDEM_TESTS TANDEM_PRECOMPILED; do
  configures "release, $option=OFF" --preset release -DTANDEM_CUDA=OFF -D$option=OFF
done
exit $failed
