// Memory for what is under way is set aside at the start: however many streams follow, none of it
// is allocated, mapped or left behind, but for what an abort finds half sent through a socket.

#include <malloc.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "kernels/registry.h"
#include "transfer/framed/framed_transport.h"
#include "transfer/media/ipc/ipc_medium.h"
#include "transfer/media/shm/shm_medium.h"
#include "transfer/media/tcp/tcp_medium.h"

namespace {

constexpr size_t kExtentBytes = size_t{32} << 10;
constexpr uint32_t kLayers = 4;
constexpr uint32_t kBlocks = 6;
constexpr size_t kStreamBytes = size_t{kLayers} * kBlocks * kExtentBytes;

std::atomic<int64_t> large_allocations{0};

// Of the payloads that are aborted; nothing else that is allocated has this size.
constexpr size_t kAbortedBytes = 30'011;
std::atomic<int> copies{0};  // of such payloads
std::atomic<int> live_copies{0};
std::atomic<int> most_live_copies{0};

bool IsCopy(void* memory) {
  static const size_t size = [] {
    void* const like = std::malloc(kAbortedBytes);
    const size_t bytes = malloc_usable_size(like);
    std::free(like);
    return bytes;
  }();
  return malloc_usable_size(memory) == size;
}

void* Allocate(size_t bytes) {
  if (bytes >= kExtentBytes / 2) ++large_allocations;
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  if (IsCopy(memory)) {
    ++copies;
    most_live_copies = std::max(most_live_copies.load(), ++live_copies);
  }
  return memory;
}

void Free(void* memory) {
  if (memory != nullptr && IsCopy(memory)) --live_copies;
  std::free(memory);
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes); }
void* operator new[](size_t bytes) { return Allocate(bytes); }
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t) noexcept { Free(memory); }

namespace tandem::transfer_memory_test {
namespace {

// Shared memory of this process, mappings and bytes.
struct SharedMappings {
  int count = 0;
  uint64_t bytes = 0;
  friend bool operator==(const SharedMappings&, const SharedMappings&) = default;
};

SharedMappings Mapped() {
  SharedMappings mapped;
  std::ifstream file("/proc/self/maps");
  for (std::string line; std::getline(file, line);) {
    uint64_t begin = 0;
    uint64_t end = 0;
    char mode[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, mode) != 3 || mode[3] != 's') {
      continue;
    }
    ++mapped.count;
    mapped.bytes += end - begin;
  }
  return mapped;
}

uint64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t pages = 0;
  uint64_t resident = 0;
  file >> pages >> resident;
  return resident * 4096;
}

class Pool final : public FrameReceiver {
 public:
  // While it is held its transport takes nothing.
  void Hold(bool held) {
    absl::MutexLock lock(&mutex_);
    held_ = held;
  }

  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) override {
    const auto goes_on = [this] {
      mutex_.AssertReaderHeld();
      return !held_;
    };
    mutex_.LockWhen(absl::Condition(&goes_on));
    mutex_.Unlock();
    return std::span(bytes_).subspan((header.layer * kBlocks + header.block) * kExtentBytes,
                                     header.payload_bytes);
  }
  void Landed(const FrameHeader&, const absl::Status& status) override { EXPECT_TRUE(status.ok()); }
  CommitAnswer Commit(const FrameHeader&) override { return {}; }
  absl::Status Renewed(uint64_t, uint64_t) override { return absl::OkStatus(); }

 private:
  absl::Mutex mutex_;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(kStreamBytes);
};

enum class Kind : uint8_t { kTcp, kShm, kIpc };

std::string KindName(const testing::TestParamInfo<Kind>& info) {
  return info.param == Kind::kTcp ? "tcp" : info.param == Kind::kShm ? "shm" : "ipc";
}

class TransferMemoryTest : public testing::TestWithParam<Kind> {
 protected:
  void Send(int streams) {
    for (int i = 0; i < streams; ++i) {
      absl::Notification ended;
      const uint64_t stream = ++last_stream_;
      const absl::StatusOr<StreamHandle> handle =
          sender_->OpenStream(receiver_->address(), stream, 1, Duration::zero(),
                              [&](uint64_t, uint64_t, const absl::Status& status) {
                                EXPECT_TRUE(status.ok()) << status;
                                ended.Notify();
                              });
      ASSERT_TRUE(handle.ok());
      for (uint32_t layer = 0; layer < kLayers; ++layer) {
        std::array<PostedExtent, kBlocks> extents;
        for (uint32_t block = 0; block < kBlocks; ++block) {
          const size_t at = (layer * kBlocks + block) * kExtentBytes;
          extents[block] = {
              .layer = layer, .block = block, .payload = source_.bytes().subspan(at, kExtentBytes)};
        }
        ASSERT_TRUE((*handle)->Post(extents).ok());
      }
      ASSERT_TRUE((*handle)->Finish().ok());
      ended.WaitForNotification();
    }
  }

  // A stream that is aborted once its sender is stuck, which may be in the middle of a payload, and
  // one behind it: then all of the first is out of the way.
  void SendAndAbort() {
    const uint64_t stream = ++last_stream_;
    const uint64_t sent_before = sender_->stats().bytes_sent;
    absl::Notification ended;
    pool_.Hold(true);
    const absl::StatusOr<StreamHandle> handle =
        sender_->OpenStream(receiver_->address(), stream, 1, Duration::zero(),
                            [&](uint64_t, uint64_t, const absl::Status& status) {
                              EXPECT_TRUE(absl::IsCancelled(status)) << status;
                              ended.Notify();
                            });
    ASSERT_TRUE(handle.ok());
    const std::vector<PostedExtent> extents(kMoreThanSocketsTake / kAbortedBytes,
                                            {.payload = source_.bytes().first(kAbortedBytes)});
    ASSERT_TRUE((*handle)->Post(extents).ok());
    uint64_t sent = 0;
    do {
      sent = sender_->stats().bytes_sent;
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    } while (sent == sent_before || sent != sender_->stats().bytes_sent);
    (*handle)->Abort();
    pool_.Hold(false);
    ended.WaitForNotification();
    Send(1);
  }

  std::unique_ptr<Medium> NewMedium() {
    if (GetParam() == Kind::kTcp) return *OpenTcpMedium({});
    if (GetParam() == Kind::kShm) return *OpenShmMedium({.device = cpu_.device.get()});
    return *OpenIpcMedium({.device = cpu_.device.get(), .shared = {source_.bytes()}});
  }
  std::unique_ptr<Transport> NewTransport(FrameReceiver* receiver) {
    return *NewFramedTransport(
        // A machine that is busy may keep the threads of a held receiver waiting for long.
        {.credit_window_bytes = kMoreThanSocketsTake,
         .answer_timeout = std::chrono::minutes(1),
         .device = cpu_.device.get()},
        NewMedium(), receiver);
  }

  static constexpr uint64_t kMoreThanSocketsTake = 64 << 20;

  const Backend cpu_ = *OpenBackend("cpu", {.num_threads = 1});
  const DeviceBuffer source_ = *cpu_.device->AllocateShared(kStreamBytes);
  Pool pool_;
  const std::unique_ptr<Transport> receiver_ = NewTransport(&pool_);
  const std::unique_ptr<Transport> sender_ = NewTransport(nullptr);
  uint64_t last_stream_ = 0;
};

TEST_P(TransferMemoryTest, AThousandStreamsTakeNoneAfterTheStart) {
  const size_t set_aside = receiver_->stats().buffer_bytes + sender_->stats().buffer_bytes;
  Send(20);  // connections are made
  const SharedMappings mapped = Mapped();
  const uint64_t resident = ResidentBytes();
  const int64_t allocated = large_allocations;
  Send(1000);
  EXPECT_EQ(large_allocations, allocated) << "pieces of half an extent or more were allocated";
  EXPECT_EQ(Mapped(), mapped);
  EXPECT_EQ(receiver_->stats().buffer_bytes + sender_->stats().buffer_bytes, set_aside);
  EXPECT_LT(ResidentBytes(), resident + 4 * kStreamBytes) << "of 1000 times as much that moved";
}

// What is half on the wire is finished, though its blocks are used anew: one payload for each
// connection. Where payloads do not go through a socket nothing is ever half sent.
TEST_P(TransferMemoryTest, AbortsCopyOnlyWhatIsHalfSentAndOnlyUntilItIsSent) {
  const bool by_socket = GetParam() == Kind::kTcp;
  const size_t set_aside = receiver_->stats().buffer_bytes + sender_->stats().buffer_bytes;
  Send(20);
  const SharedMappings mapped = Mapped();
  copies = most_live_copies = 0;
  ASSERT_EQ(live_copies, 0);
  // A stream may be stuck between two payloads: not many of them.
  for (int i = 0; i < 20 || (by_socket && copies == 0 && i < 1000); ++i) SendAndAbort();
  EXPECT_EQ(copies > 0, by_socket) << copies;
  EXPECT_EQ(most_live_copies, by_socket ? 1 : 0);
  EXPECT_EQ(live_copies, 0);
  EXPECT_EQ(Mapped(), mapped);
  EXPECT_EQ(receiver_->stats().buffer_bytes + sender_->stats().buffer_bytes, set_aside);
}

TEST(ShmMemoryTest, WhatIsMappedIsWhatIsSetAside) {
  const Backend cpu = *OpenBackend("cpu", {.num_threads = 1});
  const uint64_t before = Mapped().bytes;
  const auto medium = *OpenShmMedium({.device = cpu.device.get()});
  const size_t areas = ShmOptions().buffer_bytes;
  EXPECT_GE(medium->buffer_bytes(), areas);
  EXPECT_EQ(Mapped().bytes - before, areas);
}

INSTANTIATE_TEST_SUITE_P(Media, TransferMemoryTest,
                         testing::Values(Kind::kTcp, Kind::kShm, Kind::kIpc), KindName);

}  // namespace
}  // namespace tandem::transfer_memory_test
