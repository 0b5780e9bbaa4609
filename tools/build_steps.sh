# Sourced by demo.sh and chat.sh: the steps that both begin with. The caller sets `goal`, as "make demo", `steps`, how many
# there are, and `jobs`, and is in the root of the tree.
readonly MILLISECONDS_PER_STEP=4200  # of one core, on average, with nothing in the compiler cache

say() { printf '\n== %s\n' "$*"; }

fail() {
  printf '\n== %s stopped at %s\n' "$goal" "$1" >&2
  shift
  printf '   %s\n' "$@" >&2
  exit 1
}

install_packages() {
  say "step 1 of $steps: packages (one to two minutes when most are missing)"
  tools/install_deps.sh core || fail "step 1 of $steps, the packages" \
    "Mend what install_deps says above, then run $goal again: it continues where it stopped."
}

# Builds the program alone, in the folder that `make test` continues.
build_tandem() {
  local configure configured count minutes
  say "step 2 of $steps: building tandem"
  # A folder that is configured already keeps its tests and its choice of CUDA.
  configure=(cmake -S . -B build/release)
  if [[ ! -f build/release/build.ninja ]]; then configure=(cmake --preset demo); fi
  configured=$("${configure[@]}" 2>&1) || {
    printf '%s\n' "$configured" >&2
    fail "step 2 of $steps, configuring" "If the folder build/release is of another machine or tree, remove it:" \
      "make clean ${goal#make }"
  }
  grep -E '^-- CUDA' <<<"$configured"
  count=$(ninja -C build/release -n tandem | grep -c '^\[')
  minutes=$(((count * MILLISECONDS_PER_STEP / jobs + 59999) / 60000))
  if ((count > 0)); then
    echo "   $count files to build with $jobs jobs: about $minutes minutes, less with a warm compiler cache"
  fi
  NINJA_STATUS='[%f of %t, %p, %e s] ' ninja -C build/release -j "$jobs" tandem ||
    fail "step 2 of $steps, building" \
      "Was a compiler killed, memory is short: $goal JOBS=1. It continues where it stopped." \
      "Otherwise the first line with \"error:\" above says what is wrong."
}
