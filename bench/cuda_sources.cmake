# What measures the CUDA kernels, relative to bench/. The emulator runs the same sources.
set(CUDA_BENCH_KERNEL_SOURCES cuda_probes.cu classic_decode.cu)
# Of all programs; then of each.
set(CUDA_BENCH_SOURCES cuda_bench.cc cuda_ceilings_section.cc)
set(CUDA_KERNEL_BENCH_SOURCES cuda_kernel_bench.cc cuda_attention_case.cc cuda_decode_section.cc
    cuda_prefill_section.cc cuda_movement_section.cc cuda_model_ops_section.cc)
set(CUDA_MODEL_BENCH_SOURCES cuda_model_bench.cc cuda_model.cc profiling_ops.cc)
