#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/memory/call_staging.h"
#include "kernels/cuda/memory/scratch.h"
#include "tests/simt/simt.h"
#include "tests/unit/kernels/cuda_device_fixture.h"

// Memory that calls of the CUDA backend work in: scratch, and arrays of the host that are staged for
// one call, on the emulated GPU.

namespace tandem::cuda::cuda_scratch_test {
namespace {

using device_fixture::CudaDeviceTest;
using device_fixture::kSeeds;
using device_fixture::Pattern;
using ::testing::HasSubstr;

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
}  // namespace tandem::cuda::cuda_scratch_test
