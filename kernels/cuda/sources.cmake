# The sources of the CUDA backend, relative to kernels/cuda. The emulator compiles the same ones.
# For every architecture; for sm_90a alone; by the host's compiler.
set(CUDA_KERNEL_SOURCES
    attention/column_mass.cu attention/combine_prefill.cu attention/combine_splits.cu
    attention/decode.cu attention/decode_128.cu attention/decode_256.cu attention/decode_64.cu
    attention/decode_96.cu attention/plan_splits.cu attention/prefill.cu attention/prefill_bf16.cu
    attention/prefill_f16.cu attention/prefill_f8.cu attention/reference.cu attention/rope.cu
    gemm/coded_weight.cu gemm/skinny_gemm.cu memory/convert_kv.cu memory/extents.cu
    memory/kv_blocks.cu memory/kv_tokens.cu sampling/sampling.cu small_ops.cu)
set(CUDA_HOPPER_SOURCES attention/prefill_sm90.cu)
set(CUDA_HOST_SOURCES
    attention/prefill_plan.cc device/architectures.cc device/backend.cc device/cuda_status.cc
    device/device.cc device/driver_api.cc device/stream.cc gemm/coded_gemm.cc
    gemm/cublaslt_library.cc gemm/gemm.cc gemm/products.cc memory/call_staging.cc
    memory/copy_rows.cc memory/mapped_memory.cc memory/scratch.cc memory/shared_memory.cc
    memory/shared_places.cc memory/stream_extents.cc ops_cuda.cc ops_cuda_attention.cc
    sampling/sampler.cc)
