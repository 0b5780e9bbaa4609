# The sources of the CUDA backend, relative to kernels/cuda. The emulator compiles the same ones.
# For every architecture; for sm_90a alone; by the host's compiler.
set(CUDA_KERNEL_SOURCES attention_decode.cu attention_decode_128.cu attention_decode_256.cu
    attention_decode_64.cu attention_decode_96.cu attention_prefill.cu attention_prefill_bf16.cu
    attention_prefill_f16.cu attention_prefill_f8.cu attention_reference.cu column_mass.cu
    combine_prefill.cu combine_splits.cu convert_kv.cu extents.cu kv_blocks.cu plan_splits.cu
    rope.cu sampling.cu skinny_gemm.cu small_ops.cu)
set(CUDA_HOPPER_SOURCES attention_prefill_sm90.cu)
set(CUDA_HOST_SOURCES architectures.cc backend.cc call_staging.cc cublaslt_library.cc
    cuda_status.cc device.cc driver_api.cc gemm.cc mapped_memory.cc ops_cuda.cc
    ops_cuda_attention.cc prefill_plan.cc sampler.cc scratch.cc shared_memory.cc stream_extents.cc)
