#include <cstdint>
#include <string>

#include "base/hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/kernels/cuda_device_fixture.h"

// Recordings of the CUDA backend's streams, on the emulated GPU.

namespace tandem::cuda::cuda_recording_test {
namespace {

using device_fixture::CudaDeviceTest;
using device_fixture::Pattern;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace tandem::cuda::cuda_recording_test
