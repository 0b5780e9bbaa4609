// Stream capture into graphs, and the stand-in for cuBLASLt, whose work is captured like a kernel.
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <thread>

#include "gtest/gtest.h"
#include "kernels/cuda/launch.cuh"
#include "simt/float_formats.h"
#include "tests/simt/device_buffer.h"
#include "tests/simt/simt.h"

namespace simt {
namespace {

using tandem::Launch;

__global__ void Add(int* p, int value) { *p += value; }
__global__ void Sum(int* to, const int* a, const int* b) { *to = *a + *b; }

TEST(Capture, IsReplayedWithTheArgumentsOfTheCall) {
  DeviceArray<int> cell(std::vector<int>{0});
  TestStream stream;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  int value = 5;
  ASSERT_EQ(Launch(Add, {dim3(1), dim3(1)}, stream, cell.get(), value), cudaSuccess);
  value = 100;
  ASSERT_EQ(Launch(Add, {dim3(1), dim3(1)}, stream, cell.get(), 1), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cell.Read()[0], 0);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
  EXPECT_EQ(cell.Read()[0], 18);
  ASSERT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
}

// Two streams are captured: a fork, and a join before the sum, which may be left out.
cudaError_t CaptureFork(const DeviceArray<int>& cells, cudaGraph_t* graph, bool join) {
  TestStream origin;
  TestStream branch;
  cudaEvent_t event;
  EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  EXPECT_EQ(cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event, origin), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(branch, event), cudaSuccess);
  EXPECT_EQ(Launch(Add, {dim3(1), dim3(1)}, branch, cells.get(), 1), cudaSuccess);
  EXPECT_EQ(Launch(Add, {dim3(1), dim3(1)}, origin, cells.get() + 1, 2), cudaSuccess);
  if (join) {
    EXPECT_EQ(cudaEventRecord(event, branch), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(origin, event), cudaSuccess);
  }
  EXPECT_EQ(Launch(Sum, {dim3(1), dim3(1)}, origin, cells.get() + 2, cells.get(), cells.get() + 1),
            cudaSuccess);
  const cudaError_t error = cudaStreamEndCapture(origin, graph);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  return error;
}

TEST(Capture, FollowsEventsAcrossStreams) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SetSeed(seed);
    DeviceArray<int> cells(std::vector<int>{0, 0, 0});
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(CaptureFork(cells, &graph, true), cudaSuccess);
    cudaGraphExec_t exec = nullptr;
    ASSERT_EQ(cudaGraphInstantiate(&exec, graph), cudaSuccess);
    TestStream stream;
    ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
    EXPECT_EQ(cells.Read()[2], 3);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
  }
  DeviceArray<int> cells(3);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(CaptureFork(cells, &graph, false), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(graph, nullptr);
}

// What may not be called in a capture fails, and the capture with it.
template <class Call>
void ExpectSpoils(cudaError_t expected, Call call) {
  TestStream stream;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(call(static_cast<cudaStream_t>(stream)), expected);
  cudaStreamCaptureStatus status;
  ASSERT_EQ(cudaStreamIsCapturing(stream, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusInvalidated);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);
}

TEST(Capture, RefusesWhatWouldWait) {
  ExpectSpoils(cudaErrorStreamCaptureUnsupported,
               [](cudaStream_t stream) { return cudaStreamSynchronize(stream); });
  ExpectSpoils(cudaErrorStreamCaptureUnsupported,
               [](cudaStream_t stream) { return cudaStreamQuery(stream); });
  ExpectSpoils(cudaErrorStreamCaptureUnsupported,
               [](cudaStream_t) { return cudaDeviceSynchronize(); });
  ExpectSpoils(cudaErrorStreamCaptureUnsupported, [](cudaStream_t) {
    void* pointer = nullptr;
    return cudaMalloc(&pointer, 16);
  });
  cudaEvent_t event;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  ExpectSpoils(cudaErrorCapturedEvent, [event](cudaStream_t stream) {
    EXPECT_EQ(cudaEventRecord(event, stream), cudaSuccess);
    return cudaEventQuery(event);
  });
  ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST(Capture, AnotherThreadIsForbiddenOnlyInGlobalMode) {
  for (const auto mode : {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeGlobal}) {
    TestStream stream;
    ASSERT_EQ(cudaStreamBeginCapture(stream, mode), cudaSuccess);
    cudaError_t other = cudaSuccess;
    TestStream beside;
    std::thread([&] { other = cudaStreamSynchronize(beside); }).join();
    cudaGraph_t graph = nullptr;
    const cudaError_t end = cudaStreamEndCapture(stream, &graph);
    if (mode == cudaStreamCaptureModeGlobal) {
      EXPECT_EQ(other, cudaErrorStreamCaptureUnsupported);
      EXPECT_EQ(end, cudaErrorStreamCaptureInvalidated);
    } else {
      EXPECT_EQ(other, cudaSuccess);
      EXPECT_EQ(end, cudaSuccess);
      cudaGraphDestroy(graph);
    }
  }
}

// It waits for the captured streams, too.
TEST(Capture, NoThreadMayWaitForTheDevice) {
  for (const auto mode : {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
    TestStream stream;
    ASSERT_EQ(cudaStreamBeginCapture(stream, mode), cudaSuccess);
    cudaError_t other = cudaSuccess;
    std::thread([&other] { other = cudaDeviceSynchronize(); }).join();
    EXPECT_EQ(other, cudaErrorStreamCaptureUnsupported);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  }
}

// Whether result[rows, n] = 2 * x[rows, k] * weight[n, k]^T + 1.
void ExpectProducts(const std::vector<float>& result, const std::vector<uint16_t>& x,
                    const std::vector<uint16_t>& weight, int rows, int columns, int depth) {
  for (int row = 0; row < rows; ++row) {
    for (int n = 0; n < columns; ++n) {
      float sum = 0;
      for (int k = 0; k < depth; ++k) {
        sum += FromBf16(x[row * depth + k]) * FromBf16(weight[n * depth + k]);
      }
      EXPECT_EQ(result[row * columns + n], 2 * sum + 1);
    }
  }
}

// out[rows, n] = x[rows, k] * weight[n, k]^T in rows, as the library sees it: in columns.
TEST(FakeCublasLt, ProductsAreWorkOfTheStream) {
  void* library = dlopen(TANDEM_CUBLASLT_NAME, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
#define SIMT_FIND(name) \
  const auto name##_ = reinterpret_cast<decltype(&name)>(dlsym(library, #name))
  SIMT_FIND(cublasLtCreate);
  SIMT_FIND(cublasLtDestroy);
  SIMT_FIND(cublasLtMatmulDescCreate);
  SIMT_FIND(cublasLtMatmulDescSetAttribute);
  SIMT_FIND(cublasLtMatmulDescDestroy);
  SIMT_FIND(cublasLtMatrixLayoutCreate);
  SIMT_FIND(cublasLtMatrixLayoutDestroy);
  SIMT_FIND(cublasLtMatmul);
#undef SIMT_FIND
  constexpr int kRows = 3, kN = 5, kK = 18;
  std::vector<uint16_t> x(kRows * kK);
  std::vector<uint16_t> weight(kN * kK);
  for (size_t i = 0; i < x.size(); ++i) x[i] = ToBf16(static_cast<float>(i % 7) - 3);
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = ToBf16(static_cast<float>(i % 5) - 2);
  DeviceArray<uint16_t> device_x(x);
  DeviceArray<uint16_t> device_weight(weight);
  DeviceArray<float> out(std::vector<float>(kRows * kN, 1.0f));

  cublasLtHandle_t handle = nullptr;
  ASSERT_EQ(cublasLtCreate_(&handle), CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulDesc_t product = nullptr;
  ASSERT_EQ(cublasLtMatmulDescCreate_(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
            CUBLAS_STATUS_SUCCESS);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  ASSERT_EQ(cublasLtMatmulDescSetAttribute_(product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                            sizeof(transposed)),
            CUBLAS_STATUS_SUCCESS);
  cublasLtMatrixLayout_t a, b, d;
  cublasLtMatrixLayoutCreate_(&a, CUDA_R_16BF, kK, kN, kK);
  cublasLtMatrixLayoutCreate_(&b, CUDA_R_16BF, kK, kRows, kK);
  cublasLtMatrixLayoutCreate_(&d, CUDA_R_32F, kN, kRows, kN);
  const float alpha = 2, beta = 1;
  TestStream stream;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(cublasLtMatmul_(handle, product, &alpha, device_weight.get(), a, device_x.get(), b,
                            &beta, out.get(), d, out.get(), d, nullptr, nullptr, 0, stream),
            CUBLAS_STATUS_SUCCESS);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(out.Read()[0], 1.0f);
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
  ExpectProducts(out.Read(), x, weight, kRows, kN, kK);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cublasLtMatrixLayoutDestroy_(a);
  cublasLtMatrixLayoutDestroy_(b);
  cublasLtMatrixLayoutDestroy_(d);
  cublasLtMatmulDescDestroy_(product);
  cublasLtDestroy_(handle);
}

}  // namespace
}  // namespace simt
