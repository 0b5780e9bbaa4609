#include <fcntl.h>

#include "base/hash.h"
#include "gmock/gmock.h"
#include "kernels/cuda/device/device.h"
#include "tests/simt/simt.h"
#include "tests/support/sharing_peer.h"

// Memory that processes share, with drivers that lack what it needs: the emulated GPU's. What every
// device does with it is in tests/conformance/device_sharing_test.cc.

namespace tandem::cuda {
namespace {

using ::testing::HasSubstr;
using Kind = MemoryHandle::Kind;

constexpr size_t kMegabyte = size_t{1} << 20;
constexpr uint64_t kSeed = 5;

// Which driver a process has.
enum Driver : int { kBoth, kTokensAlone, kNeither, kRefusing };

void UseDriver(int driver) {
  simt::Configure({.no_file_handles = driver == kTokensAlone || driver == kNeither,
                   .no_ipc = driver == kNeither,
                   .refuse_imports = driver == kRefusing});
}

class CudaSharingTest : public testing::Test {
 protected:
  ~CudaSharingTest() override { UseDriver(kBoth); }

  static std::unique_ptr<CudaDevice> OpenWith(Driver driver) {
    UseDriver(driver);
    return *CudaDevice::Open(0);
  }
  static std::vector<std::byte> Read(CudaDevice& device, const DeviceBuffer& buffer) {
    const auto stream = *device.NewStream();
    std::vector<std::byte> content(buffer.size());
    EXPECT_TRUE(stream->Copy(content, buffer.bytes()).ok());
    EXPECT_TRUE(stream->Synchronize().ok());
    return content;
  }
  static void ExpectRefused(const absl::StatusOr<DeviceBuffer>& opened, absl::StatusCode code,
                            const char* words) {
    EXPECT_EQ(opened.status().code(), code) << opened.status();
    EXPECT_THAT(std::string(opened.status().message()), HasSubstr(words));
  }
};

TEST_F(CudaSharingTest, TheBestThatTheDriverDoesIsUsed) {
  EXPECT_EQ(OpenWith(kBoth)->sharing(), Sharing::kFiles);
  EXPECT_EQ(OpenWith(kTokensAlone)->sharing(), Sharing::kTokens);
  EXPECT_EQ(OpenWith(kNeither)->sharing(), Sharing::kNone);
}

TEST_F(CudaSharingTest, ADriverThatSharesNothingIsSaidToShareNothing) {
  const auto device = OpenWith(kNeither);
  EXPECT_FALSE(device->can_share());
  EXPECT_EQ(device->AllocateShared(5000).status().code(), absl::StatusCode::kUnimplemented);
  SharingPeer files("cuda:0", kBoth);
  ExpectRefused(device->OpenShared(*files.Allocate(5000, kSeed)),
                absl::StatusCode::kFailedPrecondition, "operation not supported");
  SharingPeer tokens("cuda:0", kTokensAlone);
  ExpectRefused(device->OpenShared(*tokens.Allocate(5000, kSeed)),
                absl::StatusCode::kFailedPrecondition, "operation not supported");
}

TEST_F(CudaSharingTest, TokensServeWhereThereAreNoFiles) {
  const auto device = OpenWith(kTokensAlone);
  EXPECT_TRUE(device->can_share());
  SharingPeer peer("cuda:0", kTokensAlone);
  const DeviceBuffer buffer = *device->AllocateShared(3 * kMegabyte);
  const auto stream = *device->NewStream();
  const std::vector<std::byte> content = SharedContent(kSeed, buffer.size());
  ASSERT_TRUE(stream->Copy(buffer.bytes(), content).ok());
  ASSERT_TRUE(stream->Synchronize().ok());
  const MemoryHandle handle = *device->Share(buffer.bytes());
  EXPECT_EQ(handle.kind, Kind::kCudaIpc);
  EXPECT_FALSE(handle.file.valid());
  ASSERT_EQ(peer.Open(handle), absl::OkStatus());
  EXPECT_EQ(*peer.Read(), Hash64(content));

  const MemoryHandle of_peer = *peer.Allocate(5000, kSeed + 1);
  const auto opened = device->OpenShared(of_peer);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(Read(*device, *opened), SharedContent(kSeed + 1, 5000));
  ASSERT_EQ(peer.Fill(kSeed + 2), absl::OkStatus());
  EXPECT_EQ(Read(*device, *opened), SharedContent(kSeed + 2, 5000));
}

// One worker may have a newer driver in its container than the other.
TEST_F(CudaSharingTest, AHandleIsOpenedByItsOwnKind) {
  const auto device = OpenWith(kBoth);
  SharingPeer peer("cuda:0", kTokensAlone);
  const DeviceBuffer opened = *device->OpenShared(*peer.Allocate(5000, kSeed));
  EXPECT_EQ(Read(*device, opened), SharedContent(kSeed, 5000));
}

TEST_F(CudaSharingTest, ATokenThatIsNoneIsRefused) {
  const auto device = OpenWith(kTokensAlone);
  SharingPeer peer("cuda:0", kTokensAlone);
  MemoryHandle handle = *peer.Allocate(5 * kMegabyte, kSeed);
  for (size_t bytes : {size_t{0}, size_t{1}, 3 * kMegabyte, 9 * kMegabyte, SIZE_MAX}) {
    MemoryHandle wrong{.kind = handle.kind, .bytes = bytes};
    wrong.token = handle.token;
    EXPECT_EQ(device->OpenShared(wrong).status().code(), absl::StatusCode::kInvalidArgument)
        << bytes;
  }
  EXPECT_TRUE(device->OpenShared(handle).ok());
  ASSERT_EQ(peer.Free(), absl::OkStatus());
  ExpectRefused(device->OpenShared(handle), absl::StatusCode::kInvalidArgument,
                "5242880 bytes behind a token: invalid resource handle");
  handle.token = {};
  ExpectRefused(device->OpenShared(handle), absl::StatusCode::kInvalidArgument, "invalid argument");
  const DeviceBuffer own = *device->AllocateShared(5000);
  ExpectRefused(device->OpenShared(*device->Share(own.bytes())),
                absl::StatusCode::kFailedPrecondition, "invalid device context");
  handle.kind = static_cast<Kind>(9);
  ExpectRefused(device->OpenShared(handle), absl::StatusCode::kInvalidArgument, "unknown kind 9");
}

TEST_F(CudaSharingTest, AGpuThatCannotReachTheOthersSaysWhatTheDriverSays) {
  const auto device = OpenWith(kRefusing);
  EXPECT_TRUE(device->can_share());
  SharingPeer files("cuda:0", kBoth);
  ExpectRefused(device->OpenShared(*files.Allocate(5000, kSeed)),
                absl::StatusCode::kFailedPrecondition,
                "operation not permitted (CUDA_ERROR_NOT_PERMITTED)");
  SharingPeer tokens("cuda:0", kTokensAlone);
  ExpectRefused(device->OpenShared(*tokens.Allocate(5000, kSeed)),
                absl::StatusCode::kFailedPrecondition, "mapping of buffer object failed");
}

TEST_F(CudaSharingTest, MoreThanThereIsIsRefusedWithTheSizes) {
  for (Driver driver : {kBoth, kTokensAlone}) {
    const auto device = OpenWith(driver);
    const DeviceBuffer taken = *device->AllocateShared(300 * kMegabyte);
    const absl::Status status = device->AllocateShared(400 * kMegabyte).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("0.4 GB asked for, 0.2 GB of 0.5 GB"));
  }
}

TEST_F(CudaSharingTest, WhatIsFreedIsTheDevicesAgain) {
  for (Driver driver : {kBoth, kTokensAlone}) {
    const auto device = OpenWith(driver);
    SharingPeer peer("cuda:0", driver);
    const MemoryHandle of_peer = *peer.Allocate(5000, kSeed);
    MemoryHandle wrong{.kind = of_peer.kind, .bytes = 9 * kMegabyte};
    wrong.file = UniqueFd(fcntl(of_peer.file.get(), F_DUPFD_CLOEXEC, 0));
    wrong.token = of_peer.token;
    const size_t free_before = device->Memory()->free_bytes;
    for (int i = 0; i < 5; ++i) {
      const DeviceBuffer buffer = *device->AllocateShared(3 * kMegabyte);
      EXPECT_TRUE(device->Share(buffer.bytes()).ok());
      EXPECT_EQ(device->Memory()->free_bytes, free_before - 4 * kMegabyte);
      EXPECT_EQ(device->Memory()->own_bytes, 3 * kMegabyte);
      const DeviceBuffer opened = *device->OpenShared(of_peer);
      EXPECT_EQ(device->Memory()->own_bytes, 3 * kMegabyte);
      EXPECT_FALSE(device->OpenShared(wrong).ok());
    }
    EXPECT_EQ(device->Memory()->free_bytes, free_before);
    EXPECT_EQ(device->Memory()->own_bytes, 0);
  }
}

// The driver unmaps under work that is queued; the owner's destructor must not.
TEST_F(CudaSharingTest, TheOwnersFreeingWaitsForWhatIsQueued) {
  const auto device = OpenWith(kBoth);
  const auto stream = *device->NewStream();
  const std::vector<std::byte> content = SharedContent(kSeed, 5000);
  const DeviceBuffer target = *device->Allocate(content.size());
  const DeviceBuffer hash = *device->AllocateHost(sizeof(uint64_t));
  const std::span word(reinterpret_cast<uint64_t*>(hash.data()), 1);
  for (int seed = 0; seed < 20; ++seed) {
    simt::SetSeed(static_cast<uint64_t>(seed));
    const DeviceBuffer shared = *device->AllocateShared(content.size());
    ASSERT_TRUE(stream->Copy(shared.bytes(), content).ok());
    const ExtentCopy copy = {target.bytes(), shared.bytes()};
    ASSERT_TRUE(stream->CopyAll({&copy, 1}, word).ok());
  }
  EXPECT_EQ(Read(*device, target), content);
  EXPECT_EQ(word[0], Hash64(content));
}

using CudaSharingDeathTest = CudaSharingTest;

TEST_F(CudaSharingDeathTest, WhatIsOpenedIsForReading) {
  const auto device = OpenWith(kBoth);
  SharingPeer peer("cuda:0", kBoth);
  const DeviceBuffer opened = *device->OpenShared(*peer.Allocate(5000, kSeed));
  EXPECT_DEATH(
      {
        const auto stream = *device->NewStream();
        stream->Copy(opened.bytes(), SharedContent(kSeed, 5000)).IgnoreError();
        stream->Synchronize().IgnoreError();
      },
      "the device what it may not");
}

}  // namespace
}  // namespace tandem::cuda

int main(int argc, char** argv) {
  tandem::SharingPeer::StartNursery(tandem::cuda::UseDriver);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
