#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "base/hash.h"
#include "tests/support/ops_fixture.h"
#include "tests/support/sharing_peer.h"

// Memory that processes share, as Device promises it: what another process writes is read here and
// the reverse, whoever frees it or dies, and what is not such memory is refused.

namespace tandem::device_sharing_test {
namespace {

using Kind = MemoryHandle::Kind;

constexpr size_t kMegabyte = size_t{1} << 20;
constexpr uint64_t kSeed = 11;

class DeviceSharingTest : public OpsTest {
 protected:
  void SetUp() override {
    OpsTest::SetUp();
    if (!device().can_share()) GTEST_SKIP() << device().name() << " shares no memory";
  }

  DeviceBuffer NewShared(size_t bytes, uint64_t seed = kSeed) {
    DeviceBuffer buffer = *device().AllocateShared(bytes);
    Write(buffer, seed);
    return buffer;
  }
  void Write(const DeviceBuffer& buffer, uint64_t seed) {
    ASSERT_TRUE(stream().Copy(buffer.bytes(), SharedContent(seed, buffer.size())).ok());
    ASSERT_TRUE(stream().Synchronize().ok());
  }
  // What the device copies from there, checked against its hash.
  std::vector<std::byte> Read(const DeviceBuffer& buffer) {
    const DeviceBuffer own = *device().Allocate(buffer.size());
    const DeviceBuffer hash = *device().AllocateHost(sizeof(uint64_t));
    const std::span word(reinterpret_cast<uint64_t*>(hash.data()), 1);
    const ExtentCopy copy = {own.bytes(), buffer.bytes()};
    EXPECT_TRUE(stream().CopyAll({&copy, 1}, word).ok());
    std::vector<std::byte> content(buffer.size());
    EXPECT_TRUE(stream().Copy(content, own.bytes()).ok());
    EXPECT_TRUE(stream().Synchronize().ok());
    EXPECT_EQ(word[0], Hash64(content));
    return content;
  }
  absl::StatusCode CodeOfOpening(const MemoryHandle& handle) {
    return device().OpenShared(handle).status().code();
  }
  static MemoryHandle Copied(const MemoryHandle& handle) {
    MemoryHandle copy{.kind = handle.kind, .bytes = handle.bytes};
    copy.file = UniqueFd(fcntl(handle.file.get(), F_DUPFD_CLOEXEC, 0));
    copy.token = handle.token;
    return copy;
  }
};

TEST_P(DeviceSharingTest, ItIsMemoryLikeAnyOther) {
  EXPECT_EQ(device().AllocateShared(0)->size(), 0);
  for (size_t bytes : {size_t{1}, size_t{5000}, 2 * kMegabyte, 2 * kMegabyte + 1}) {
    SCOPED_TRACE(bytes);
    const size_t own_before = device().Memory()->own_bytes;
    {
      const DeviceBuffer buffer = NewShared(bytes);
      EXPECT_EQ(buffer.size(), bytes);
      EXPECT_EQ(Read(buffer), SharedContent(kSeed, bytes));
      const size_t own = device().is_host() ? 0 : bytes;  // not counted there
      EXPECT_EQ(device().Memory()->own_bytes, own_before + own);
    }
    EXPECT_EQ(device().Memory()->own_bytes, own_before);
  }
  EXPECT_EQ(device().AllocateShared(size_t{1} << 50).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_P(DeviceSharingTest, AnotherProcessReadsIt) {
  for (size_t bytes : {size_t{1}, size_t{5000}, 2 * kMegabyte, 5 * kMegabyte + 3}) {
    SCOPED_TRACE(bytes);
    const DeviceBuffer buffer = NewShared(bytes);
    const absl::StatusOr<MemoryHandle> handle = device().Share(buffer.bytes());
    ASSERT_TRUE(handle.ok()) << handle.status();
    EXPECT_EQ(handle->bytes, bytes);
    SharingPeer peer(GetParam().backend);
    ASSERT_EQ(peer.Open(*handle), absl::OkStatus());
    EXPECT_EQ(*peer.Read(), Hash64(SharedContent(kSeed, bytes)));
    Write(buffer, kSeed + 1);
    EXPECT_EQ(*peer.Read(), Hash64(SharedContent(kSeed + 1, bytes)));
  }
}

TEST_P(DeviceSharingTest, SeveralProcessesReadIt) {
  const DeviceBuffer buffer = NewShared(70'000);
  const MemoryHandle handle = *device().Share(buffer.bytes());
  SharingPeer first(GetParam().backend);
  SharingPeer second(GetParam().backend);
  for (SharingPeer* peer : {&first, &second}) {
    ASSERT_EQ(peer->Open(handle), absl::OkStatus());
    EXPECT_EQ(*peer->Read(), Hash64(SharedContent(kSeed, buffer.size())));
  }
  first.Kill();
  EXPECT_EQ(*second.Read(), Hash64(SharedContent(kSeed, buffer.size())));
  EXPECT_EQ(Read(buffer), SharedContent(kSeed, buffer.size()));
}

TEST_P(DeviceSharingTest, AnotherProcessesMemoryIsReadHere) {
  constexpr size_t kBytes = 3 * kMegabyte + 100;
  SharingPeer peer(GetParam().backend);
  const absl::StatusOr<MemoryHandle> handle = peer.Allocate(kBytes, kSeed);
  ASSERT_TRUE(handle.ok()) << handle.status();
  const size_t own_before = device().Memory()->own_bytes;
  const absl::StatusOr<DeviceBuffer> opened = device().OpenShared(*handle);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->size(), kBytes);
  EXPECT_EQ(device().Memory()->own_bytes, own_before);
  EXPECT_EQ(Read(*opened), SharedContent(kSeed, kBytes));
  ASSERT_EQ(peer.Fill(kSeed + 1), absl::OkStatus());
  EXPECT_EQ(Read(*opened), SharedContent(kSeed + 1, kBytes));
}

TEST_P(DeviceSharingTest, ItStaysWhatItIsWhenItsOwnerFreesItOrDies) {
  SharingPeer peer(GetParam().backend);
  const absl::StatusOr<MemoryHandle> handle = peer.Allocate(100'000, kSeed);
  ASSERT_TRUE(handle.ok()) << handle.status();
  if (handle->kind == Kind::kCudaIpc) GTEST_SKIP() << "as far as the driver goes";
  const DeviceBuffer opened = *device().OpenShared(*handle);
  ASSERT_EQ(peer.Free(), absl::OkStatus());
  EXPECT_EQ(Read(opened), SharedContent(kSeed, 100'000));
  peer.Kill();
  EXPECT_EQ(Read(opened), SharedContent(kSeed, 100'000));
  EXPECT_EQ(Read(*device().OpenShared(*handle)), SharedContent(kSeed, 100'000));
}

TEST_P(DeviceSharingTest, ThisProcessOpensItsOwn) {
  const DeviceBuffer buffer = NewShared(5000);
  const MemoryHandle handle = *device().Share(buffer.bytes());
  if (handle.kind == Kind::kCudaIpc) GTEST_SKIP() << "the driver opens other processes' alone";
  const DeviceBuffer first = *device().OpenShared(handle);
  const DeviceBuffer second = *device().OpenShared(*device().Share(buffer.bytes()));
  for (const DeviceBuffer* opened : {&first, &second}) {
    EXPECT_NE(opened->data(), buffer.data());
    EXPECT_EQ(Read(*opened), SharedContent(kSeed, 5000));
  }
}

TEST_P(DeviceSharingTest, AHandleOfAnotherSizeIsRefused) {
  SharingPeer peer(GetParam().backend);
  const MemoryHandle handle = *peer.Allocate(5 * kMegabyte, kSeed);
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{5000}, 3 * kMegabyte, 9 * kMegabyte,
                       size_t{1} << 60, SIZE_MAX}) {
    MemoryHandle wrong = Copied(handle);
    wrong.bytes = bytes;
    EXPECT_EQ(CodeOfOpening(wrong), absl::StatusCode::kInvalidArgument) << bytes;
  }
  EXPECT_EQ(CodeOfOpening(handle), absl::StatusCode::kOk);
}

TEST_P(DeviceSharingTest, AHandleThatIsNoneIsRefused) {
  const DeviceBuffer buffer = NewShared(5000);
  const MemoryHandle handle = *device().Share(buffer.bytes());
  MemoryHandle foreign = Copied(handle);
  foreign.kind = device().is_host() ? Kind::kDeviceFile : Kind::kHostFile;
  EXPECT_EQ(CodeOfOpening(foreign), absl::StatusCode::kFailedPrecondition);
  if (handle.kind == Kind::kCudaIpc) return;
  MemoryHandle without = Copied(handle);
  without.file = UniqueFd();
  EXPECT_EQ(CodeOfOpening(without), absl::StatusCode::kInvalidArgument);
  for (const char* path : {"/dev/null", "/proc/self/exe", "/"}) {
    MemoryHandle other = Copied(handle);
    other.file = UniqueFd(open(path, O_RDONLY | O_CLOEXEC));
    EXPECT_FALSE(device().OpenShared(other).ok()) << path;
  }
  EXPECT_EQ(CodeOfOpening(handle), absl::StatusCode::kOk);
}

// Peers come and go while the engine's thread records its graphs.
TEST_P(DeviceSharingTest, OpeningItAndLettingGoOfItDisturbNoRecording) {
  if (!device().can_record_graphs()) GTEST_SKIP() << device().name() << " records nothing";
  SharingPeer peer(GetParam().backend);
  const MemoryHandle handle = *peer.Allocate(5000, kSeed);
  const DeviceBuffer own = NewShared(5000);
  const DeviceBuffer copy = *device().Allocate(5000);
  ASSERT_TRUE(stream().BeginRecording().ok());
  std::thread([&] { EXPECT_TRUE(device().OpenShared(handle).ok()); }).join();
  EXPECT_TRUE(stream().Copy(copy.bytes(), own.bytes()).ok());
  const absl::StatusOr<std::unique_ptr<Graph>> graph = stream().EndRecording();
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(stream().Launch(**graph).ok());
  EXPECT_TRUE(stream().Synchronize().ok());
}

TEST_P(DeviceSharingTest, OnlyWholeSharedMemoryIsShared) {
  const auto code_of_sharing = [this](std::span<const std::byte> memory) {
    return device().Share(memory).status().code();
  };
  const DeviceBuffer plain = *device().Allocate(5000);
  EXPECT_EQ(code_of_sharing(plain.bytes()), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of_sharing({}), absl::StatusCode::kInvalidArgument);
  DeviceBuffer shared = NewShared(5000);
  const std::span<const std::byte> whole = shared.bytes();
  EXPECT_EQ(code_of_sharing(whole.first(4999)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of_sharing(whole.subspan(1)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of_sharing(whole), absl::StatusCode::kOk);
  SharingPeer peer(GetParam().backend);
  const DeviceBuffer opened = *device().OpenShared(*peer.Allocate(5000, kSeed));
  EXPECT_EQ(code_of_sharing(opened.bytes()), absl::StatusCode::kInvalidArgument);
  shared = DeviceBuffer();
  EXPECT_EQ(code_of_sharing(whole), absl::StatusCode::kInvalidArgument);
}

TEST_P(DeviceSharingTest, AProcessWithoutFilesToGiveSaysSo) {
  const DeviceBuffer shared = NewShared(5000);
  if (device().Share(shared.bytes())->kind == Kind::kCudaIpc) GTEST_SKIP() << "no file is given";
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status status = device().Share(shared.bytes()).status();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(device().Share(shared.bytes()).ok());
}

size_t OpenFiles() {
  return static_cast<size_t>(std::ranges::distance(
      std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

TEST_P(DeviceSharingTest, NothingIsLeftBehind) {
  SharingPeer peer(GetParam().backend);
  const MemoryHandle of_peer = *peer.Allocate(5000, kSeed);
  MemoryHandle wrong = Copied(of_peer);
  wrong.bytes = 9 * kMegabyte;
  const auto use = [&] {
    const DeviceBuffer buffer = NewShared(5000);
    const MemoryHandle handle = *device().Share(buffer.bytes());
    EXPECT_TRUE(device().OpenShared(of_peer).ok());
    EXPECT_FALSE(device().OpenShared(wrong).ok());
  };
  use();  // a driver may open files of its own at first
  const size_t files_before = OpenFiles();
  const size_t own_before = device().Memory()->own_bytes;
  for (int i = 0; i < 20; ++i) use();
  EXPECT_EQ(OpenFiles(), files_before);
  EXPECT_EQ(device().Memory()->own_bytes, own_before);
}

TANDEM_INSTANTIATE_OPS_TEST(DeviceSharingTest);

}  // namespace
}  // namespace tandem::device_sharing_test

int main(int argc, char** argv) {
  tandem::SharingPeer::StartNursery();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
