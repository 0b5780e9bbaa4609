# Sourced by run.sh and daemon.sh, from the root of the tree: where the programs are and how they
# start.
#   use_programs [PACK]   PACK is a folder that pack.sh wrote, or that its archive was unpacked into;
#                         without one, the programs are built here
#   program NAME ARG...   runs bin/NAME
#   json_string TEXT      TEXT as a JSON string
ROOT=$PWD
LOADER=()
PYTHON_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
# What links ops on every device, then what takes TANDEM_TEST_DEVICE, then what measures.
OPS_TESTS=(device_extents_test device_sharing_test ops_test ops_attention_test
  ops_attention_bits_test ops_attention_mass_test ops_coded_weights_test ops_kv_test
  ops_rows_test ops_sample_test ops_validate_test)
DEVICE_TESTS=(kvstore_device_test model_device_test engine_device_test transport_conformance_test)
BENCHES=(cuda_kernel_bench cuda_model_bench transfer_bench)
PROGRAM_NAMES=("${OPS_TESTS[@]}" "${DEVICE_TESTS[@]}" "${BENCHES[@]}")

json_string() {
  local text=${1//\\/\\\\}
  text=${text//\"/\\\"}
  text=${text//$'\t'/ }
  text=${text//$'\r'/}
  printf '"%s"' "${text//$'\n'/\\n}" | tr -d '\000-\037'
}

unpack() {
  UNPACKED=$(mktemp -d "${TMPDIR:-/tmp}/gpu_pack.XXXXXX")
  echo "unpacking $1 into $UNPACKED"
  if command -v xz >/dev/null; then
    tar -C "$UNPACKED" -xJf "$1"
  else
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$1" "$UNPACKED"
  fi
}

build_programs() {
  local grpc=OFF
  if pkg-config --exists grpc++ 2>/dev/null; then grpc=ON; fi
  cmake -S . -B build/gpu -G Ninja -DCMAKE_BUILD_TYPE=Release -DTANDEM_CUDA=ON \
    -DTANDEM_GRPC=$grpc "-DTANDEM_CUDA_ARCHITECTURES=90-real" >/dev/null || return 1
  local targets=("${PROGRAM_NAMES[@]}")
  if [[ $grpc == ON ]]; then targets+=(tandem); fi
  ninja -C build/gpu "${targets[@]}" || return 1
  BIN=$ROOT/build/gpu/bin
  COMMIT=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
}

use_programs() {
  if [[ -z ${1:-} ]]; then
    build_programs
    return
  fi
  local pack
  pack=$(cd "$1" && pwd) || return 1
  if [[ -e $pack/pack.tar.xz ]]; then
    unpack "$pack/pack.tar.xz" || return 1
    pack=$UNPACKED
  fi
  BIN=$pack/bin
  COMMIT=$(cat "$pack/COMMIT")
  # With this machine's own libc where it is new enough; else with the one that was built against.
  if [[ $("$BIN/cuda_kernel_bench" --none 2>&1) != "cuda_kernel_bench: "* ]]; then
    LOADER=("$pack/libc/ld-linux-x86-64.so.2" --library-path
      "$pack/libc:$pack/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")  # there may be the driver's
    echo "this machine's libc is older than the pack's: the pack's own is used"
  fi
  # Where toolkits and frameworks keep cuBLASLt and NCCL when the system's linker does not know them.
  # Not for python3: a framework comes with libraries of its own.
  local folder folders
  mapfile -t folders < <(python3 -c 'import glob, nvidia
for path in nvidia.__path__:
    for name in ("libcublasLt.so.1[23]", "libnccl.so.2"):
        for found in sorted(glob.glob(f"{path}/*/lib/{name}"), reverse=True):
            print(found.rpartition("/")[0])' 2>/dev/null)
  for folder in /usr/local/cuda/lib64 "${folders[@]}"; do
    if [[ -d $folder ]]; then
      export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
      if ((${#LOADER[@]})); then LOADER[2]+=:$folder; fi
    fi
  done
}

program() {
  local name=$1
  shift
  "${LOADER[@]}" "$BIN/$name" "$@"
}
