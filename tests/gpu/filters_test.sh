#!/usr/bin/env bash
# filters_test.sh BIN: every pattern of sanitizer_runs.sh names a test, by the emulated programs in
# BIN; the limits of a stage fit into a call with DEADLINE=530.
set -euo pipefail
source "$(dirname "$0")/sanitizer_runs.sh"
bad=0
for stage in MEMCHECK RACECHECK; do
  declare -n lines=$stage
  sum=0
  for line in "${lines[@]}"; do
    read -r tool seconds name filter <<<"$line"
    sum=$((sum + seconds))
    IFS=: read -ra patterns <<<"$filter"
    for pattern in "${patterns[@]}"; do
      if ! "$1/${name%_test}_emulated_test" --gtest_list_tests --gtest_filter="$pattern" | grep "^  " >/dev/null; then
        echo "FAILED: $tool $name: no test is $pattern"
        bad=1
      fi
    done
  done
  if ((sum > 530)); then
    echo "FAILED: $stage may take $sum s"
    bad=1
  fi
done
exit $bad
