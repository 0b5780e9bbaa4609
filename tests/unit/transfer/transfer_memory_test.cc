// Memory for what is under way is set aside at the start: however many streams follow, none of it
// is allocated, mapped or left behind.

#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "kernels/registry.h"
#include "transfer/framed/framed_transport.h"
#include "transfer/ipc/ipc_medium.h"
#include "transfer/shm/shm_medium.h"
#include "transfer/tcp/tcp_medium.h"

namespace {

constexpr size_t kExtentBytes = size_t{32} << 10;
constexpr uint32_t kLayers = 4;
constexpr uint32_t kBlocks = 6;
constexpr size_t kStreamBytes = size_t{kLayers} * kBlocks * kExtentBytes;

std::atomic<int64_t> large_allocations{0};

void* Allocate(size_t bytes) {
  if (bytes >= kExtentBytes / 2) ++large_allocations;
  if (void* memory = std::malloc(bytes); memory != nullptr) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes); }
void* operator new[](size_t bytes) { return Allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace tandem {
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
  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) override {
    return std::span(bytes_).subspan((header.layer * kBlocks + header.block) * kExtentBytes,
                                     header.payload_bytes);
  }
  void Landed(const FrameHeader&, const absl::Status& status) override { EXPECT_TRUE(status.ok()); }
  CommitAnswer Commit(const FrameHeader&) override { return {}; }
  absl::Status Renewed(uint64_t, uint64_t) override { return absl::OkStatus(); }

 private:
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
      ASSERT_TRUE(sender_
                      ->OpenStream(receiver_->address(), stream, 1, Duration::zero(),
                                   [&](uint64_t, uint64_t, const absl::Status& status) {
                                     EXPECT_TRUE(status.ok()) << status;
                                     ended.Notify();
                                   })
                      .ok());
      for (uint32_t layer = 0; layer < kLayers; ++layer) {
        std::array<PostedExtent, kBlocks> extents;
        for (uint32_t block = 0; block < kBlocks; ++block) {
          const size_t at = (layer * kBlocks + block) * kExtentBytes;
          extents[block] = {
              .layer = layer, .block = block, .payload = source_.bytes().subspan(at, kExtentBytes)};
        }
        ASSERT_TRUE(sender_->Post(stream, 1, extents).ok());
      }
      ASSERT_TRUE(sender_->FinishStream(stream, 1).ok());
      ended.WaitForNotification();
    }
  }

  std::unique_ptr<Medium> NewMedium() {
    if (GetParam() == Kind::kTcp) return *TcpMedium::Open({});
    if (GetParam() == Kind::kShm) return *ShmMedium::Open({.device = cpu_.device.get()});
    return *IpcMedium::Open({.device = cpu_.device.get(), .shared = {source_.bytes()}});
  }
  std::unique_ptr<Transport> NewTransport(FrameReceiver* receiver) {
    return *NewFramedTransport({.device = cpu_.device.get()}, NewMedium(), receiver);
  }

  const Backend cpu_ = *OpenBackend("cpu", {.num_threads = 1});
  const DeviceBuffer source_ = *cpu_.device->AllocateShared(kStreamBytes);
  Pool pool_;
  const std::unique_ptr<Transport> receiver_ = NewTransport(&pool_);
  const std::unique_ptr<Transport> sender_ = NewTransport(nullptr);
  uint64_t last_stream_ = 0;
};

TEST_P(TransferMemoryTest, AThousandStreamsTakeNoneAfterTheStart) {
  const size_t set_aside = receiver_->buffer_bytes() + sender_->buffer_bytes();
  Send(20);  // connections are made
  const SharedMappings mapped = Mapped();
  const uint64_t resident = ResidentBytes();
  const int64_t allocated = large_allocations;
  Send(1000);
  EXPECT_EQ(large_allocations, allocated) << "pieces of half an extent or more were allocated";
  EXPECT_EQ(Mapped(), mapped);
  EXPECT_EQ(receiver_->buffer_bytes() + sender_->buffer_bytes(), set_aside);
  EXPECT_LT(ResidentBytes(), resident + 4 * kStreamBytes) << "of 1000 times as much that moved";
}

TEST(ShmMemoryTest, WhatIsMappedIsWhatIsSetAside) {
  const Backend cpu = *OpenBackend("cpu", {.num_threads = 1});
  const uint64_t before = Mapped().bytes;
  const auto medium = *ShmMedium::Open({.device = cpu.device.get()});
  EXPECT_GT(medium->memory().size(), 0u);
  EXPECT_GE(medium->buffer_bytes(), medium->memory().size());
  EXPECT_GE(Mapped().bytes - before, medium->memory().size());
}

INSTANTIATE_TEST_SUITE_P(Media, TransferMemoryTest,
                         testing::Values(Kind::kTcp, Kind::kShm, Kind::kIpc), KindName);

}  // namespace
}  // namespace tandem
