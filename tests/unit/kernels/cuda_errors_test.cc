#include <array>
#include <string>

#include "gmock/gmock.h"
#include "kernels/cuda/device/architectures.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/gemm/cublaslt_library.h"
#include "kernels/registry.h"
#include "tests/simt/simt.h"

// What a machine that cannot use CUDA is told, on the emulated GPU: one line that says what to do.

namespace tandem::cuda::cuda_errors_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class CudaErrorsTest : public testing::Test {
 protected:
  ~CudaErrorsTest() override { simt::Configure({}); }

  // The message of OpenBackend(name), which must fail with `code` and leave no such device.
  static std::string Refusal(const simt::DeviceConfig& config, std::string_view name,
                             absl::StatusCode code) {
    simt::Configure(config);
    const absl::Status status = OpenBackend(name, {}).status();
    EXPECT_EQ(status.code(), code) << status;
    if (name == "cuda:0") {
      EXPECT_EQ(GpuStatus(), status);
    }
    EXPECT_THAT(BackendNames(), Not(Contains(std::string(name))));
    EXPECT_THAT(BackendNames(), Contains("cpu"));
    std::string message(status.message());
    EXPECT_THAT(message, Not(HasSubstr("\n")));
    EXPECT_THAT(message, HasSubstr(name));
    return message;
  }
};

TEST_F(CudaErrorsTest, ADeviceThatCanBeUsedIsListedAndOpens) {
  EXPECT_THAT(BackendNames(), ElementsAre("cpu", "cpu-bf16", "cuda:0"));
  EXPECT_TRUE(GpuStatus().ok()) << GpuStatus();
  for (const char* name : {"cuda", "cuda:0"}) {
    const auto backend = OpenBackend(name, {});
    ASSERT_TRUE(backend.ok()) << backend.status();
    EXPECT_EQ(backend->device->name(), "cuda:0");
  }
}

TEST_F(CudaErrorsTest, NoDriver) {
  EXPECT_THAT(Refusal({.missing_driver = true, .driver_version = 0}, "cuda:0",
                      absl::StatusCode::kFailedPrecondition),
              AllOf(HasSubstr("no NVIDIA driver"), HasSubstr("for CUDA 13.0 or later"),
                    HasSubstr("--device cpu")));
}

TEST_F(CudaErrorsTest, ADriverTooOld) {
  EXPECT_THAT(Refusal({.driver_version = 12040}, "cuda:0", absl::StatusCode::kFailedPrecondition),
              AllOf(HasSubstr("is for CUDA 12.4"), HasSubstr("needs 13.0"),
                    HasSubstr("update the driver")));
}

TEST_F(CudaErrorsTest, ADriverWithoutGpu) {
  EXPECT_THAT(Refusal({.num_devices = 0}, "cuda:0", absl::StatusCode::kFailedPrecondition),
              AllOf(HasSubstr("finds no GPU"), HasSubstr("CUDA_VISIBLE_DEVICES")));
}

TEST_F(CudaErrorsTest, AnIndexBeyondTheDevices) {
  EXPECT_THAT(Refusal({.num_devices = 2}, "cuda:2", absl::StatusCode::kNotFound),
              HasSubstr("choose one of cuda:0, cuda:1"));
}

TEST_F(CudaErrorsTest, AGpuTooOld) {
  EXPECT_THAT(Refusal({.compute_capability = 75}, "cuda:0", absl::StatusCode::kFailedPrecondition),
              AllOf(HasSubstr("compute capability 7.5"), HasSubstr("8.0 or later")));
}

TEST_F(CudaErrorsTest, AGpuWithoutKernelsInThisBuild) {
  EXPECT_THAT(Refusal({.compute_capability = 120}, "cuda:0", absl::StatusCode::kFailedPrecondition),
              AllOf(HasSubstr("compute capability 12.0"), HasSubstr("80-real,89-real,90-real"),
                    HasSubstr("-DTANDEM_CUDA_ARCHITECTURES=120-real")));
}

TEST_F(CudaErrorsTest, NamesThatAreNotOfADevice) {
  for (const char* name : {"cuda:", "cuda:x", "cuda:-1", "cuda0", "gpu"}) {
    const absl::Status status = OpenBackend(name, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cpu, cpu-bf16, cuda:0"));
  }
}

TEST_F(CudaErrorsTest, NoCublasLt) {
  constexpr std::array kNames = {"libnothing_here.so.1", "libnothing_there.so"};
  const absl::Status status = CublasLtLibrary::Open(kNames).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("libnothing_here.so.1, libnothing_there.so"), HasSubstr("LD_LIBRARY_PATH")));
}

TEST_F(CudaErrorsTest, ALibraryThatIsNotCublasLt) {
  constexpr std::array kNames = {"libnothing_here.so.1", "libm.so.6"};
  const absl::Status status = CublasLtLibrary::Open(kNames).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cublasLtCreate"));
}

TEST_F(CudaErrorsTest, CodeRunsWhereItWasCompiledFor) {
  constexpr std::string_view kDefault = "80-real,89-real,90-real";
  for (int runs : {80, 86, 87, 89, 90}) EXPECT_TRUE(HasCodeFor(kDefault, runs)) << runs;
  for (int not_there : {70, 75, 100, 103, 120}) {
    EXPECT_FALSE(HasCodeFor(kDefault, not_there)) << not_there;
  }
  EXPECT_TRUE(HasCodeFor("90a-real", 90));
  EXPECT_FALSE(HasCodeFor("100a-real", 103));
  EXPECT_FALSE(HasCodeFor("89-real", 80));
  EXPECT_TRUE(HasCodeFor("80-virtual", 89));
  EXPECT_TRUE(HasCodeFor("90-virtual", 120));
  EXPECT_FALSE(HasCodeFor("90-virtual", 89));
  EXPECT_TRUE(HasCodeFor("89-real,90", 100));
  // Its kernels would not wait for one another there.
  for (int overlaps : {90, 100, 120}) EXPECT_FALSE(HasCodeFor("80-virtual,89", overlaps));
  EXPECT_FALSE(HasCodeFor("", 90));
}

TEST_F(CudaErrorsTest, StatusesSayWhoIsToBlame) {
  EXPECT_TRUE(ToStatus(cudaSuccess, "rope").ok());
  const absl::Status lost = ToStatus(cudaErrorIllegalAddress, "rope");
  EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(lost.message()),
              AllOf(HasSubstr("rope: an illegal memory access"), HasSubstr("restart the process")));
  EXPECT_EQ(ToStatus(cudaErrorContained, "").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ToStatus(cudaErrorMemoryAllocation, "").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ToStatus(cudaErrorStreamCaptureInvalidated, "").code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ToStatus(cudaErrorInvalidValue, "").code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace tandem::cuda::cuda_errors_test
