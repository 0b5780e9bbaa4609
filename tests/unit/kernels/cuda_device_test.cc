#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/simt/simt.h"
#include "tests/unit/kernels/cuda_device_fixture.h"

// Memory, copies and events of the CUDA backend's device, on the emulated GPU.

namespace tandem::cuda::cuda_device_test {
namespace {

using device_fixture::CudaDeviceTest;
using device_fixture::kSeeds;
using device_fixture::Pattern;
using ::testing::HasSubstr;

constexpr size_t kMegabyte = 1 << 20;

TEST_F(CudaDeviceTest, SaysWhatItIs) {
  EXPECT_EQ(device_->name(), "cuda:0");
  EXPECT_FALSE(device_->is_host());
  EXPECT_TRUE(device_->can_record_graphs());
  EXPECT_EQ(device_->target().compute_capability, 90);
  EXPECT_EQ(device_->target().num_sms, simt::DeviceConfig().num_sms);
  EXPECT_GT(device_->target().max_shared_bytes, size_t{48} << 10);
  EXPECT_GE(device_->target().shared_bytes_per_sm, device_->target().max_shared_bytes);
}

TEST_F(CudaDeviceTest, MayTakeTheKernelsOfLesserDevices) {
  EXPECT_EQ((*CudaDevice::Open(0, 89))->target().compute_capability, 89);
  EXPECT_EQ((*CudaDevice::Open(0, 120))->target().compute_capability, 90);
}

TEST_F(CudaDeviceTest, MemoryIsGivenAndGivenBack) {
  const DeviceMemory before = *device_->Memory();
  EXPECT_EQ(before.total_bytes, simt::DeviceConfig().memory_bytes);
  {
    const auto buffer = device_->Allocate(100 * kMegabyte);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ(buffer->size(), 100 * kMegabyte);
    EXPECT_LE(device_->Memory()->free_bytes, before.free_bytes - 100 * kMegabyte);
  }
  EXPECT_EQ(device_->Memory()->free_bytes, before.free_bytes);
  EXPECT_EQ(device_->Allocate(0)->size(), 0);
  EXPECT_EQ(device_->AllocateHost(0)->size(), 0);
}

TEST_F(CudaDeviceTest, HostMemoryIsPageLockedAsLongAsItIsRegistered) {
  std::vector<std::byte> memory(4096);
  const auto kind = [&memory] {
    cudaPointerAttributes attributes;
    EXPECT_EQ(cudaPointerGetAttributes(&attributes, memory.data() + 4000), cudaSuccess);
    return attributes.type;
  };
  {
    const auto registered = device_->RegisterHost(memory);
    ASSERT_TRUE(registered.ok()) << registered.status();
    EXPECT_EQ(registered->data(), memory.data());
    EXPECT_EQ(registered->size(), memory.size());
    EXPECT_EQ(kind(), cudaMemoryTypeHost);
    EXPECT_FALSE(device_->RegisterHost(memory).ok()) << "twice";
    EXPECT_EQ(kind(), cudaMemoryTypeHost);
  }
  EXPECT_EQ(kind(), cudaMemoryTypeUnregistered);
}

TEST_F(CudaDeviceTest, MoreThanThereIsIsRefusedWithTheSizesAndHarmsNothing) {
  const auto taken = *device_->Allocate(300 * kMegabyte);
  const absl::Status status = device_->Allocate(400 * kMegabyte).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("cuda:0: 0.4 GB asked for, 0.2 GB of 0.5 GB"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("smaller model"));
  auto stream = NewStream();
  const std::vector<std::byte> content = Pattern(1000, 3);
  EXPECT_EQ(Read(*stream, OnDevice(*stream, content)), content);
}

TEST_F(CudaDeviceTest, OnlyForeignHostMemoryIsCopiedByADetour) {
  auto stream = NewStream();
  const std::vector<std::byte> foreign = Pattern(5000, 1);
  DeviceBuffer device = *device_->Allocate(foreign.size());
  DeviceBuffer host = *device_->AllocateHost(foreign.size());
  std::memcpy(host.data(), foreign.data(), foreign.size());
  simt::ResetCounts();
  ASSERT_TRUE(stream->Copy(device.bytes(), host.bytes()).ok());
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(simt::Counts().pageable_copies, 0);
  EXPECT_EQ(simt::Counts().allocations, 0);
  EXPECT_EQ(Read(*stream, device), foreign);
  EXPECT_EQ(simt::Counts().pageable_copies, 1);
}

TEST_F(CudaDeviceTest, CopiesOfUnequalSizesAreRefused) {
  auto stream = NewStream();
  DeviceBuffer device = *device_->Allocate(16);
  const std::array<std::byte, 15> source = {};
  EXPECT_EQ(stream->Copy(device.bytes(), source).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(CudaDeviceTest, KernelsOfComputeStreamsStartFirst) {
  const auto priority_of = [](const Stream& stream) {
    int priority = 1;
    EXPECT_EQ(cudaStreamGetPriority(static_cast<const CudaStream&>(stream).handle(), &priority),
              cudaSuccess);
    return priority;
  };
  const std::unique_ptr<Stream> compute = *device_->NewComputeStream();
  EXPECT_LT(priority_of(*compute), priority_of(*NewStream())) << "a lower number goes first";
}

TEST_F(CudaDeviceTest, AStreamRunsInOrderAndOthersWaitForEvents) {
  for (int seed = 0; seed < kSeeds; ++seed) {
    simt::SetSeed(static_cast<uint64_t>(seed));
    auto writer = NewStream();
    auto reader = NewStream();
    const std::vector<std::byte> content = Pattern(256, seed);
    DeviceBuffer source = *device_->AllocateHost(content.size());
    std::memcpy(source.data(), content.data(), content.size());
    DeviceBuffer a = OnDevice(*writer, Pattern(content.size(), 100));
    DeviceBuffer b = OnDevice(*writer, Pattern(content.size(), 101));
    DeviceBuffer result = *device_->AllocateHost(content.size());
    ASSERT_TRUE(writer->Copy(a.bytes(), source.bytes()).ok());
    ASSERT_TRUE(writer->Copy(b.bytes(), a.bytes()).ok());
    const auto written = *writer->Record();
    ASSERT_TRUE(reader->Wait(*written).ok());
    ASSERT_TRUE(reader->Copy(result.bytes(), b.bytes()).ok());
    const auto read = *reader->Record();
    ASSERT_TRUE(read->Synchronize().ok());
    EXPECT_TRUE(read->Done());
    EXPECT_TRUE(written->Done());
    EXPECT_EQ(std::memcmp(result.data(), content.data(), content.size()), 0) << "seed " << seed;
  }
}

TEST_F(CudaDeviceTest, ExtentsTakeFewLaunchesAndNoMemory) {
  auto stream = NewStream();
  const std::vector<std::byte> content = Pattern(4096, 5);
  const DeviceBuffer from = OnDevice(*stream, content);
  const DeviceBuffer to = OnDevice(*stream, Pattern(4096, 6));
  const DeviceBuffer hashes = *device_->AllocateHost(1000 * sizeof(uint64_t));
  const std::span words(reinterpret_cast<uint64_t*>(hashes.data()), 1000);
  std::vector<ExtentCopy> copies;
  for (size_t i = 0; i < words.size(); ++i) {
    copies.push_back({to.bytes().subspan(4 * i, 4), from.bytes().subspan(4 * i, 4)});
  }
  simt::ResetCounts();
  ASSERT_TRUE(stream->CopyAll(copies, words).ok());
  EXPECT_LE(simt::Counts().launches, 8);
  EXPECT_EQ(simt::Counts().allocations, 0);
  EXPECT_EQ(simt::Counts().copies_to_device + simt::Counts().stream_synchronizations, 0);
  copies.clear();
  std::vector<std::byte> written = Read(*stream, to);
  written.resize(4000);
  EXPECT_EQ(written, Pattern(4000, 5));
  for (size_t i = 0; i < words.size(); ++i) {
    ASSERT_EQ(words[i], Hash64(std::span(content).subspan(4 * i, 4))) << i;
  }
}

// What a transfer to or from the host holds of the device, it holds for as long as the bus takes.
TEST_F(CudaDeviceTest, ExtentsOfTheHostTakeFewThreadBlocks) {
  constexpr size_t kExtents = 40;
  constexpr size_t kExtentBytes = 64 << 10;
  auto stream = NewStream();
  const std::vector<std::byte> content = Pattern(kExtents * kExtentBytes, 5);
  const DeviceBuffer source = OnDevice(*stream, content);
  const DeviceBuffer target = *device_->Allocate(content.size());
  const DeviceBuffer relay = *device_->AllocateHost(content.size());
  const DeviceBuffer hashes = *device_->AllocateHost(kExtents * sizeof(uint64_t));
  const std::span words(reinterpret_cast<uint64_t*>(hashes.data()), kExtents);
  const auto blocks_of = [&](const DeviceBuffer& to, const DeviceBuffer& from) {
    std::vector<ExtentCopy> copies;
    for (size_t i = 0; i < kExtents; ++i) {
      copies.push_back({to.bytes().subspan(i * kExtentBytes, kExtentBytes),
                        from.bytes().subspan(i * kExtentBytes, kExtentBytes)});
    }
    simt::ResetCounts();
    EXPECT_TRUE(stream->CopyAll(copies, words).ok());
    EXPECT_TRUE(stream->Synchronize().ok());
    return simt::Counts().thread_blocks;
  };
  EXPECT_EQ(blocks_of(relay, source), 4);
  EXPECT_EQ(blocks_of(target, relay), 4);
  EXPECT_EQ(Read(*stream, target), content);
  EXPECT_EQ(blocks_of(target, source), 32);
  const std::span<const std::byte> on_host = relay.bytes();
  const std::vector<std::span<const std::byte>> extents(kExtents, on_host.first(kExtentBytes));
  simt::ResetCounts();
  ASSERT_TRUE(stream->HashAll(extents, words).ok());
  EXPECT_EQ(simt::Counts().thread_blocks, 4);
}

// A kernel that wrote there would cost the context.
TEST_F(CudaDeviceTest, HashesGoWhereDeviceAndHostBothReach) {
  auto stream = NewStream();
  const DeviceBuffer content = OnDevice(*stream, Pattern(64, 1));
  const std::span<const std::byte> extent = content.bytes();
  uint64_t of_the_host_alone = 0;
  const std::span of_the_device_alone(reinterpret_cast<uint64_t*>(content.data()), 1);
  for (std::span<uint64_t> hashes : {std::span(&of_the_host_alone, 1), of_the_device_alone}) {
    const absl::Status status = stream->HashAll({&extent, 1}, hashes);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("AllocateHost"));
  }
}

TEST_F(CudaDeviceTest, AnEventOutlivesItsStreamAndDevice) {
  auto stream = NewStream();
  auto event = *stream->Record();
  ASSERT_TRUE(event->Synchronize().ok());
  stream.reset();
  device_.reset();
  EXPECT_TRUE(event->Done());
}

}  // namespace
}  // namespace tandem::cuda::cuda_device_test
