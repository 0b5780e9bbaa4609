# What measures the transports, relative to bench/. With an emulated GPU it runs from the same sources.
set(TRANSFER_BENCH_SOURCES transfer_bench.cc transfer_ceilings.cc transfer_paths.cc
    transfer_peer.cc)
