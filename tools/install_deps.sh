#!/usr/bin/env bash
# Installs what Tandem is built with, from Debian 12's or Ubuntu 24.04's own packages.
#   tools/install_deps.sh [core] [test] [prometheus] [check] [sanitize] [page] [python] [package] [cluster]
# Without a group: core and test.
# Idempotent: says what is missing, installs that and nothing else. Needs root or sudo only then.
set -euo pipefail

# make demo: what the tandem program is built with
core=(build-essential cmake ninja-build pkg-config ccache lld git
      libabsl-dev libfmt-dev libspdlog-dev libxxhash-dev libzstd-dev libhwy-dev libpcre2-dev libicu-dev
      libssl-dev nlohmann-json3-dev libcli11-dev libprotobuf-dev protobuf-compiler libgrpc-dev libgrpc++-dev
      protobuf-compiler-grpc libboost-dev libcurl4-openssl-dev libedit-dev)
# make build, make test, make bench
test=(libgtest-dev libgmock-dev libboost-context-dev python3 python3-yaml curl)
# make test: promtool, and a Prometheus that scrapes a running service; without them their tests are left out. Where
# systemd runs, Debian's package starts a Prometheus on port 9090: systemctl disable --now prometheus ends it.
prometheus=(prometheus)
# make check, make format (clang-format and clang-tidy are used in version 14 alone, the one of Debian 12)
check=(python3 clang clang-format clang-tidy)
# make test-asan, make test-tsan, make fuzz
sanitize=(clang libclang-rt-dev)
# make test-page
page=(python3 python3-venv chromium fonts-dejavu-core)
# tools/*.py and tests/golden/*.py: the rest comes from tools/requirements.txt
python=(python3 python3-venv)
# make deb, deploy/docker
package=(python3 dpkg-dev gzip file)
# make test-cluster
cluster=(python3 iproute2 dnsmasq-base)

wanted=()
if (($# == 0)); then set -- core test; fi
for group in "$@"; do
  case "$group" in
    core) wanted+=("${core[@]}") ;;
    test) wanted+=("${test[@]}") ;;
    prometheus) wanted+=("${prometheus[@]}") ;;
    check) wanted+=("${check[@]}") ;;
    sanitize) wanted+=("${sanitize[@]}") ;;
    page) wanted+=("${page[@]}") ;;
    python) wanted+=("${python[@]}") ;;
    package) wanted+=("${package[@]}") ;;
    cluster) wanted+=("${cluster[@]}") ;;
    *) echo "install_deps: unknown group \"$group\"; use core, test, prometheus, check, sanitize, page, python, package or cluster" >&2; exit 2 ;;
  esac
done

missing=()
for package in "${wanted[@]}"; do
  dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
    missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "install_deps: all ${#wanted[@]} packages are there"
  exit 0
fi

echo "install_deps: installing ${missing[*]}"
run=()
if ((EUID != 0)); then
  command -v sudo >/dev/null || {
    echo "install_deps: neither root nor sudo; ask somebody to install: ${missing[*]}" >&2
    exit 1
  }
  run=(sudo)
fi
"${run[@]}" apt-get update -qq || {
  echo "install_deps: apt-get update failed (above): check the network, /etc/apt/sources.list and any proxy" >&2
  exit 1
}
"${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
  "${missing[@]}" >/dev/null || {
  echo "install_deps: apt-get install failed (above): Debian 12 and Ubuntu 24.04 (universe) have all of" \
    "these packages; elsewhere install their counterparts" >&2
  exit 1
}
echo "install_deps: installed ${#missing[@]} packages"
