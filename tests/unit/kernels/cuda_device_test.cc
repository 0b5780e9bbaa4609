#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/hash.h"
#include "gmock/gmock.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/memory/call_staging.h"
#include "kernels/cuda/memory/scratch.h"
#include "tests/simt/simt.h"

// The device of the CUDA backend on the emulated GPU, which runs what is queued as late and in as
// odd an order as streams and events allow.

namespace tandem::cuda::cuda_device_test {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMegabyte = 1 << 20;
constexpr int kSeeds = 20;

std::vector<std::byte> Pattern(size_t size, int first) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(first + 7 * i);
  return bytes;
}

class CudaDeviceTest : public testing::Test {
 protected:
  CudaDeviceTest() : device_(*CudaDevice::Open(0)) {}
  ~CudaDeviceTest() override { simt::SetSeed(1); }

  std::unique_ptr<CudaStream> NewStream() {
    return std::unique_ptr<CudaStream>(static_cast<CudaStream*>(device_->NewStream()->release()));
  }
  DeviceBuffer OnDevice(Stream& stream, std::span<const std::byte> content) {
    DeviceBuffer buffer = *device_->Allocate(content.size());
    EXPECT_TRUE(stream.Copy(buffer.bytes(), content).ok());
    EXPECT_TRUE(stream.Synchronize().ok());
    return buffer;
  }
  std::vector<std::byte> Read(Stream& stream, const DeviceBuffer& buffer) {
    std::vector<std::byte> content(buffer.size());
    EXPECT_TRUE(stream.Copy(content, buffer.bytes()).ok());
    EXPECT_TRUE(stream.Synchronize().ok());
    return content;
  }

  std::unique_ptr<CudaDevice> device_;
};

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

TEST_F(CudaDeviceTest, ARecordingTakesExtents) {
  auto stream = NewStream();
  const DeviceBuffer from = OnDevice(*stream, Pattern(3000, 1));
  const DeviceBuffer to = OnDevice(*stream, Pattern(3000, 2));
  const DeviceBuffer hash = *device_->AllocateHost(sizeof(uint64_t));
  const std::span word(reinterpret_cast<uint64_t*>(hash.data()), 1);
  const ExtentCopy copy = {to.bytes(), from.bytes()};
  ASSERT_TRUE(stream->BeginRecording().ok());
  ASSERT_TRUE(stream->CopyAll({&copy, 1}, word).ok());
  const auto graph = *stream->EndRecording();
  EXPECT_EQ(Read(*stream, to), Pattern(3000, 2));
  ASSERT_TRUE(stream->Copy(from.bytes(), Pattern(3000, 3)).ok());
  ASSERT_TRUE(stream->Launch(*graph).ok());
  EXPECT_EQ(Read(*stream, to), Pattern(3000, 3));
  EXPECT_EQ(word[0], Hash64(Pattern(3000, 3)));
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

TEST_F(CudaDeviceTest, ARecordingRunsWhenItIsLaunchedOnWhatLiesThereThen) {
  auto stream = NewStream();
  DeviceBuffer from = OnDevice(*stream, Pattern(64, 1));
  DeviceBuffer to = OnDevice(*stream, Pattern(64, 2));
  ASSERT_TRUE(stream->BeginRecording().ok());
  EXPECT_TRUE(stream->recording());
  ASSERT_TRUE(stream->Copy(to.bytes(), from.bytes()).ok());
  const auto graph = stream->EndRecording();
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_FALSE(stream->recording());
  EXPECT_EQ(Read(*stream, to), Pattern(64, 2));
  for (int i : {5, 6}) {
    ASSERT_TRUE(stream->Copy(from.bytes(), Pattern(64, i)).ok());
    ASSERT_TRUE(stream->Launch(**graph).ok());
    EXPECT_EQ(Read(*stream, to), Pattern(64, i));
  }
}

TEST_F(CudaDeviceTest, AFailedCallSpoilsTheRecordingAndNotTheNext) {
  auto stream = NewStream();
  DeviceBuffer a = OnDevice(*stream, Pattern(64, 1));
  DeviceBuffer b = OnDevice(*stream, Pattern(64, 2));
  ASSERT_TRUE(stream->BeginRecording().ok());
  EXPECT_FALSE(stream->Copy(a.bytes(), b.bytes().first(3)).ok());
  EXPECT_TRUE(stream->Copy(a.bytes(), b.bytes()).ok());
  const absl::Status spoiled = stream->EndRecording().status();
  EXPECT_EQ(spoiled.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(spoiled.message()), HasSubstr("copy of 3 bytes into 64"));

  ASSERT_TRUE(stream->BeginRecording().ok());
  EXPECT_TRUE(stream->Copy(a.bytes(), b.bytes()).ok());
  EXPECT_TRUE(stream->EndRecording().ok());
}

TEST_F(CudaDeviceTest, WaitingForTheStreamSpoilsARecording) {
  auto stream = NewStream();
  ASSERT_TRUE(stream->BeginRecording().ok());
  EXPECT_EQ(stream->Synchronize().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(stream->EndRecording().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(stream->Synchronize().ok());
}

TEST_F(CudaDeviceTest, RecordingsBeginAndEndInTurn) {
  auto stream = NewStream();
  EXPECT_EQ(stream->EndRecording().status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(stream->BeginRecording().ok());
  EXPECT_EQ(stream->BeginRecording().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(CudaDeviceTest, ScratchGrowsAndStaysWhereItIsOtherwise) {
  auto stream = NewStream();
  Scratch scratch(*device_, "test");
  ASSERT_TRUE(scratch.Reserve(1000).ok());
  std::byte* const first = *scratch.Get(*stream, 1000);
  EXPECT_EQ(*scratch.Get(*stream, 10), first);
  simt::ResetCounts();
  EXPECT_EQ(*scratch.Get(*stream, 1000), first);
  EXPECT_EQ(simt::Counts().allocations, 0);
  ASSERT_TRUE(scratch.Get(*stream, 5000).ok());
  EXPECT_EQ(simt::Counts().allocations, 1);
  const absl::Status status = scratch.Reserve(size_t{1} << 40);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("test: cuda:0"));
}

TEST_F(CudaDeviceTest, ScratchThatARecordingUsesIsKeptWhenItGrows) {
  auto stream = NewStream();
  Scratch scratch(*device_, "test");
  ASSERT_TRUE(scratch.Reserve(64).ok());
  DeviceBuffer from = OnDevice(*stream, Pattern(64, 9));
  DeviceBuffer to = OnDevice(*stream, Pattern(64, 1));
  ASSERT_TRUE(stream->BeginRecording().ok());
  std::byte* const recorded = *scratch.Get(*stream, 64);
  ASSERT_TRUE(stream->Copy({recorded, 64}, from.bytes()).ok());
  ASSERT_TRUE(stream->Copy(to.bytes(), {recorded, 64}).ok());
  const auto graph = *stream->EndRecording();

  std::byte* const grown = *scratch.Get(*stream, 6400);
  EXPECT_TRUE(grown + 6400 <= recorded || recorded + 64 <= grown);
  ASSERT_TRUE(stream->Launch(*graph).ok());
  EXPECT_EQ(Read(*stream, to), Pattern(64, 9));
}

TEST_F(CudaDeviceTest, ScratchDoesNotGrowInARecording) {
  auto stream = NewStream();
  Scratch scratch(*device_, "test");
  ASSERT_TRUE(stream->BeginRecording().ok());
  const absl::Status status = scratch.Get(*stream, 64).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("test needs 64 bytes and has 0"));
}

TEST_F(CudaDeviceTest, ZeroedScratchIsZeroAgainWhenItHasGrown) {
  auto stream = NewStream();
  Scratch scratch(*device_, "test");
  for (size_t size : {100, 5000}) {
    std::byte* const data = *scratch.GetZeroed(*stream, size);
    std::vector<std::byte> content(size, std::byte{1});
    ASSERT_TRUE(stream->Copy(content, {data, size}).ok());
    ASSERT_TRUE(stream->Synchronize().ok());
    EXPECT_EQ(content, std::vector<std::byte>(size)) << size;
  }
}

// More calls than the ring has slots, on two streams, none waited for.
TEST_F(CudaDeviceTest, StagedArraysArriveWhateverTheOrder) {
  constexpr size_t kCalls = 40;
  for (int seed = 0; seed < kSeeds; ++seed) {
    simt::SetSeed(static_cast<uint64_t>(seed));
    CallStaging staging(*device_, 4);
    const std::array streams = {NewStream(), NewStream()};
    DeviceBuffer results = *device_->AllocateHost(kCalls * 256 * sizeof(int32_t));
    std::vector<std::vector<int32_t>> expected;
    for (size_t i = 0; i < kCalls; ++i) {
      CudaStream& stream = *streams[i % 2];
      std::vector<int32_t> values(1 + (i * 37) % 256);
      std::iota(values.begin(), values.end(), static_cast<int32_t>(1000 * i));
      auto call = *staging.Begin(stream, CallStaging::RoomFor(StagedSpan<int32_t>(values)));
      const StagedSpan<int32_t> staged = call.Add(StagedSpan<int32_t>(values));
      ASSERT_TRUE(call.Upload(stream).ok());
      const auto bytes = std::as_bytes(std::span(staged.device(), staged.size()));
      ASSERT_TRUE(stream.Copy(results.bytes().subspan(i * 1024, bytes.size()), bytes).ok());
      ASSERT_TRUE(call.End(stream).ok());
      expected.push_back(std::move(values));
    }
    for (const auto& stream : streams) ASSERT_TRUE(stream->Synchronize().ok());
    for (size_t i = 0; i < kCalls; ++i) {
      const std::vector<int32_t>& values = expected[i];
      ASSERT_EQ(std::memcmp(results.data() + i * 1024, values.data(), 4 * values.size()), 0)
          << "seed " << seed << " call " << i;
    }
  }
}

TEST_F(CudaDeviceTest, ArraysThatAreOnTheDeviceAreNotStagedAgain) {
  auto stream = NewStream();
  CallStaging staging(*device_, 4);
  const std::array<int32_t, 3> host = {1, 2, 3};
  const StagedSpan<int32_t> there(host, reinterpret_cast<const int32_t*>(0x1000));
  EXPECT_EQ(CallStaging::RoomFor(there), 0);
  simt::ResetCounts();
  auto call = *staging.Begin(*stream, CallStaging::RoomFor(there));
  EXPECT_EQ(call.Add(there).device(), there.device());
  EXPECT_TRUE(call.Upload(*stream).ok());
  EXPECT_TRUE(call.End(*stream).ok());
  EXPECT_EQ(simt::Counts().copies_to_device, 0);
}

TEST_F(CudaDeviceTest, ARecordingTakesNoArraysOfTheHost) {
  auto stream = NewStream();
  CallStaging staging(*device_, 4);
  ASSERT_TRUE(stream->BeginRecording().ok());
  EXPECT_EQ(staging.Begin(*stream, 4).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(staging.Begin(*stream, 0).ok());
}

}  // namespace
}  // namespace tandem::cuda::cuda_device_test
