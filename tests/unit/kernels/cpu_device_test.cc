#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "gmock/gmock.h"
#include "kernels/cpu/faster_compute.h"
#include "kernels/cpu/processor.h"
#include "kernels/registry.h"

namespace tandem::cpu_device_test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class CpuDeviceTest : public ::testing::Test {
 protected:
  CpuDeviceTest() : backend_(*OpenBackend("cpu", {.num_threads = 1})) {}

  Device& device() { return *backend_.device; }

  Backend backend_;
};

bool AllZero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

TEST_F(CpuDeviceTest, MemoryIsAlignedZeroAndWritable) {
  for (size_t size : {1, 100, 4096, 5000, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 7 << 20}) {
    SCOPED_TRACE(size);
    auto buffer = device().Allocate(size);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ(buffer->size(), size);
    const size_t alignment = size >= (2 << 20) ? size_t{2} << 20 : size_t{4096};
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % alignment, 0);
    EXPECT_TRUE(AllZero(buffer->bytes()));
    buffer->bytes().front() = std::byte{1};
    buffer->bytes().back() = std::byte{2};
  }
}

// Pages of address space that the process has mapped (proc(5), statm). Takes no memory itself: the
// heap may grow and shrink with that of a stream.
int64_t MappedPages() {
  std::array<char, 128> line{};
  const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  EXPECT_GT(read(file, line.data(), line.size() - 1), 0);
  close(file);
  return std::strtoll(line.data(), nullptr, 10);
}

TEST_F(CpuDeviceTest, FreedMemoryIsUnmapped) {
  for (size_t size : {size_t{5000}, size_t{1} << 30}) {
    const int64_t before = MappedPages();
    int64_t during = 0;
    for (int i = 0; i < 4; ++i) {
      auto buffer = device().Allocate(size);
      ASSERT_TRUE(buffer.ok()) << buffer.status();
      during = MappedPages();
    }
    EXPECT_GT(during, before);
    EXPECT_EQ(MappedPages(), before) << "after " << size << " bytes";
  }
}

TEST_F(CpuDeviceTest, NothingIsABufferToo) {
  auto buffer = device().Allocate(0);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->size(), 0);
}

TEST_F(CpuDeviceTest, MoreThanTheMachineHasIsRefusedWithItsSize) {
  for (size_t size : {size_t{1} << 50, std::numeric_limits<size_t>::max()}) {
    const absl::Status status = device().Allocate(size).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(size)));
  }
}

TEST_F(CpuDeviceTest, StreamCopiesEqualSizesInline) {
  auto stream = *device().NewStream();
  const std::array<std::byte, 3> from = {std::byte{1}, std::byte{2}, std::byte{3}};
  std::array<std::byte, 3> to{};
  ASSERT_TRUE(stream->Copy(to, from).ok());
  EXPECT_EQ(to, from);
  auto event = *stream->Record();
  EXPECT_TRUE(event->Done());
  EXPECT_TRUE(event->Synchronize().ok());
  EXPECT_TRUE(stream->Wait(*event).ok());
  EXPECT_EQ(stream->Copy(std::span(to).first(2), from).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(CpuDeviceTest, ItsMemoryIsTheHosts) {
  EXPECT_TRUE(device().is_host());
  const auto memory = device().Memory();
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_GT(memory->free_bytes, 0);
  EXPECT_GE(memory->total_bytes, memory->free_bytes);
  EXPECT_EQ(device().Allocate(memory->total_bytes + 1).status().code(),
            absl::StatusCode::kResourceExhausted);
  auto host = device().AllocateHost(5000);
  ASSERT_TRUE(host.ok()) << host.status();
  host->bytes().back() = std::byte{1};
}

// A page that is taken away would end the process that reads it.
TEST_F(CpuDeviceTest, AFileThatMayShrinkIsNotOpened) {
  const auto code_of_opening = [this](unsigned seals) {
    MemoryHandle handle{.kind = MemoryHandle::Kind::kHostFile, .bytes = 5000};
    handle.file = UniqueFd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(ftruncate(handle.file.get(), 8192), 0);
    EXPECT_EQ(fcntl(handle.file.get(), F_ADD_SEALS, seals), 0);
    return device().OpenShared(handle).status().code();
  };
  EXPECT_EQ(code_of_opening(0), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of_opening(F_SEAL_GROW | F_SEAL_WRITE), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of_opening(F_SEAL_SHRINK), absl::StatusCode::kOk);
}

TEST_F(CpuDeviceTest, WhoeverIsGivenSharedMemoryCannotWriteIt) {
  const DeviceBuffer shared = *device().AllocateShared(5000);
  const MemoryHandle handle = *device().Share(shared.bytes());
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, handle.file.get(), 0),
            MAP_FAILED);
  EXPECT_EQ(pwrite(handle.file.get(), "x", 1, 0), -1);
  EXPECT_NE(ftruncate(handle.file.get(), 0), 0);
  const DeviceBuffer opened = *device().OpenShared(handle);
  EXPECT_NE(mprotect(opened.data(), 4096, PROT_READ | PROT_WRITE), 0);
  shared.bytes()[7] = std::byte{1};
  EXPECT_EQ(opened.bytes()[7], std::byte{1});
}

TEST_F(CpuDeviceTest, SharedMemoryIsAlignedZeroAndUnmapped) {
  const auto use = [this](size_t size) {
    const auto buffer = device().AllocateShared(size);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    const size_t alignment = size >= (2 << 20) ? size_t{2} << 20 : size_t{4096};
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % alignment, 0);
    EXPECT_TRUE(AllZero(buffer->bytes()));
    const auto opened = device().OpenShared(*device().Share(buffer->bytes()));
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_TRUE(AllZero(opened->bytes()));
  };
  for (size_t size : {size_t{5000}, size_t{2} << 20, size_t{7} << 20}) {
    SCOPED_TRACE(size);
    use(size);  // the heap grows at first
    const int64_t before = MappedPages();
    for (int i = 0; i < 4; ++i) use(size);
    EXPECT_LE(MappedPages(), before);  // the heap may shrink
  }
}

TEST_F(CpuDeviceTest, WorkIsNotRecorded) {
  EXPECT_FALSE(device().can_record_graphs());
  auto stream = *device().NewStream();
  EXPECT_EQ(stream->BeginRecording().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(stream->EndRecording().status().code(), absl::StatusCode::kUnimplemented);
}

TEST(RegistryTest, NamesThatDoNotExistAreRefusedWithThoseThatDo) {
  const absl::Status unknown = OpenBackend("gpu", {}).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("cpu"));
}

// Without a toolkit in the build, or without a driver here: said, never replaced by the CPU.
TEST(RegistryTest, ADeviceThatCannotBeUsedSaysWhatToDo) {
  const auto cuda = OpenBackend("cuda", {});
  if (cuda.ok()) {
    EXPECT_EQ(cuda->device->name(), "cuda:0");
    return;
  }
  EXPECT_THAT(cuda.status().code(),
              AnyOf(absl::StatusCode::kUnimplemented, absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(cuda.status().message()),
              AllOf(HasSubstr("device cuda:0: "), HasSubstr("--device cpu")));
}

TEST(RegistryTest, OpensWhatItNames) {
  for (const std::string& name : BackendNames()) {
    auto backend = OpenBackend(name, {});
    ASSERT_TRUE(backend.ok()) << backend.status();
    EXPECT_EQ(backend->device->name(), name);
  }
}

// The name tells which of both it is, since requests stay on one kind.
TEST(RegistryTest, TheFasterCpuIsOneOfBoth) {
  EXPECT_TRUE(IsCpuName("cpu-auto"));
  const std::string name = ResolveDeviceName("cpu-auto");
  EXPECT_THAT(name, AnyOf("cpu", "cpu-bf16"));
  if (!HasBF16Dots()) {
    EXPECT_EQ(name, "cpu");
  }
  const auto backend = OpenBackend("cpu-auto", {});
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ(backend->device->name(), name);
}

// Near the ratios that processors have, 1 and 2, noise decides nothing.
TEST(RegistryTest, PairsOfBf16AreTakenWhereTheySaveAQuarter) {
  using cpu::CpuCompute;
  using std::chrono::microseconds;
  EXPECT_EQ(cpu::FasterOf({.f32 = microseconds(200), .bf16 = microseconds(110)}),
            CpuCompute::kBF16);
  EXPECT_EQ(cpu::FasterOf({.f32 = microseconds(200), .bf16 = microseconds(149)}),
            CpuCompute::kBF16);
  EXPECT_EQ(cpu::FasterOf({.f32 = microseconds(200), .bf16 = microseconds(150)}), CpuCompute::kF32);
  EXPECT_EQ(cpu::FasterOf({.f32 = microseconds(200), .bf16 = microseconds(230)}), CpuCompute::kF32);
}

TEST(RegistryTest, NamesStandForDevices) {
  EXPECT_EQ(ResolveDeviceName("cuda"), "cuda:0");
  EXPECT_EQ(ResolveDeviceName("cuda:1"), "cuda:1");
  EXPECT_EQ(ResolveDeviceName("cpu"), "cpu");
}

TEST(RegistryTest, ANegativeNumberOfThreadsIsRefused) {
  EXPECT_EQ(OpenBackend("cpu", {.num_threads = -1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem::cpu_device_test
