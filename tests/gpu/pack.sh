#!/usr/bin/env bash
# tests/gpu/pack.sh [PACK]: builds everything that tests/gpu/run.sh and daemon.sh run, and packs it
# with the libraries that it needs into PACK/pack.tar.xz (default build/gpu_pack), for a GPU machine
# that has none of the packages: a driver and cuBLASLt are all that is needed there. Models, test data
# and scripts are the tree's, from whose root the programs are run: it goes there anyway, and what may
# go there is 64 MiB.
# ARCHITECTURES in the environment names those of the portable kernels, default 90-real; JOBS the
# number of compilers at once.
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/gpu/programs.sh
pack=${1:-build/gpu_pack}
build=build/pack_build
staging=$build/pack

# An rpath that also serves the libraries' own libraries, and test data relative to the root.
cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release -DTANDEM_CUDA=ON -DTANDEM_GRPC=ON \
  -DTANDEM_CUDA_ARCHITECTURES="${ARCHITECTURES:-90-real}" -DTANDEM_TEST_ROOT=. \
  -DCMAKE_BUILD_RPATH='$ORIGIN/../lib' -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags >/dev/null
ninja -C $build ${JOBS:+-j$JOBS} "${PROGRAM_NAMES[@]}" tandem

rm -rf $staging
mkdir -p $staging/bin $staging/lib $staging/libc "$pack"
for name in "${PROGRAM_NAMES[@]}" tandem; do
  strip -o "$staging/bin/$name" "$build/bin/$name"
done
# The C library and its loader go apart: they serve only where the machine's own are older.
ldd $staging/bin/* | awk '/=> \// {print $3}' | sort -u | while read -r library; do
  case ${library##*/} in
    libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.*) cp -L "$library" $staging/libc/ ;;
    *) cp -L "$library" $staging/lib/ ;;
  esac
done
cp -L /lib64/ld-linux-x86-64.so.2 $staging/libc/
chmod -R u+w $staging/lib $staging/libc
strip --strip-unneeded $staging/lib/* 2>/dev/null || true
git rev-parse --short HEAD >$staging/COMMIT

# One window over all programs: most of what is in them is the same.
tar -C $staging --sort=name -c . | xz -T1 --lzma2=preset=6,dict=128MiB >"$pack/pack.tar.xz"
du -sh $staging/bin $staging/lib $staging/libc | sed 's/^/  /'
echo "$pack/pack.tar.xz: $(stat -c %s "$pack/pack.tar.xz" | numfmt --to=iec-i)B"
