// The places of payloads that peers name over ipc and NCCL: whatever they say, what is found lies
// in what they have shown or sent. Each step takes a byte for what is done, and its operands.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/device.h"
#include "tests/fuzz/steps.h"
#include "transfer/media/ipc/segments.h"
#include "transfer/media/nccl/received_payloads.h"

namespace tandem {
namespace {

// Reads it all, for a sanitizer to see where it lies.
uint64_t Sum(std::span<const std::byte> bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}, [](uint64_t sum, auto byte) {
    return sum + std::to_integer<uint64_t>(byte);
  });
}

// Memory of a sender, as the receiver has opened it: every byte says of which segment it is.
class IpcMemory {
 public:
  static IpcMemory& Get() {
    static IpcMemory memory;
    return memory;
  }

  void Find(uint64_t place, uint64_t bytes) const {
    const auto found = opened_.Find(place, bytes);
    const uint64_t index = place >> kSegmentOffsetBits;
    const uint64_t offset = place & (kMaxMemorySegmentBytes - 1);
    const bool inside =
        index < kSizes.size() && offset <= kSizes[index] && bytes <= kSizes[index] - offset;
    TANDEM_CHECK(found.ok() == inside, "outside of a segment, or not found within");
    if (!inside) return;
    TANDEM_CHECK(found->size() == bytes && Sum(*found) == bytes * (index + 1),
                 "bytes of another segment");
    if (bytes == 0) return;
    const auto sent_from = segments_[index].bytes().subspan(offset, bytes);
    TANDEM_CHECK(*shared_.HandleOf(sent_from) == place, "a place that its sender does not name");
  }

 private:
  static constexpr std::array<size_t, 3> kSizes = {1, 4096, 5000};

  IpcMemory() : shared_(*SharedSegments::Share(*device_, Allocate())), opened_(Open()) {}

  std::vector<std::span<const std::byte>> Allocate() {
    std::vector<std::span<const std::byte>> memory;
    for (size_t i = 0; i < kSizes.size(); ++i) {
      segments_.push_back(*device_->AllocateShared(kSizes[i]));
      std::ranges::fill(segments_.back().bytes(), static_cast<std::byte>(i + 1));
      memory.push_back(segments_.back().bytes());
    }
    return memory;
  }
  OpenedSegments Open() const {
    std::vector<UniqueFd> files;
    for (const int file : shared_.files()) files.emplace_back(dup(file));
    return *OpenedSegments::Open(*device_, shared_.greeting(), std::move(files));
  }

  const std::unique_ptr<Device> device_ = NewCpuDevice();
  std::vector<DeviceBuffer> segments_;
  const SharedSegments shared_;
  const OpenedSegments opened_;
};

// A slot into which operations come, of exactly its size.
class NcclSlotOfAPeer {
 public:
  explicit NcclSlotOfAPeer(size_t bytes) : memory_(bytes), places_(memory_) {}

  void Expect(uint32_t bytes) {
    const auto place = places_.Expect(bytes);
    TANDEM_CHECK(place.ok() == (bytes > 0 && bytes <= memory_.size()), "a size that cannot be");
    if (!place.ok()) return;
    ++operations_;
    bytes_ = bytes;
    std::ranges::fill(*place, std::byte{1});
    TANDEM_CHECK(place->size() == bytes, "a place of another size");
  }
  void Find(uint64_t place, uint64_t bytes) const {
    const auto found = places_.Find(place, bytes);
    const uint64_t offset = place & 0xFFFFFFFF;
    const bool inside = operations_ > 0 && place >> 32 == operations_ - 1 && bytes > 0 &&
                        offset <= bytes_ && bytes <= bytes_ - offset;
    TANDEM_CHECK(found.ok() == inside, "outside of the newest operation, or not found within");
    if (!inside) return;
    TANDEM_CHECK(found->data() == memory_.data() + offset && Sum(*found) == bytes,
                 "bytes that did not come with it");
    TANDEM_CHECK(NcclHandleOf(operations_ - 1, offset) == place, "a place of another operation");
  }

 private:
  std::vector<std::byte> memory_;
  NcclReceivedPayloads places_;
  uint32_t operations_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  Steps steps(std::span(data, size));
  NcclSlotOfAPeer slot(steps.Take(2) % 10'000);
  while (!steps.done()) {
    switch (steps.Take(1) % 6) {
      case 0: {
        const uint64_t place = steps.Take(8);
        IpcMemory::Get().Find(place, steps.Take(8));
        break;
      }
      case 1: {  // near what is right
        const uint64_t segment = steps.Take(1) % 4;
        const uint64_t place = segment << kSegmentOffsetBits | steps.Take(2);
        IpcMemory::Get().Find(place, steps.Take(2));
        break;
      }
      case 2:
        slot.Expect(static_cast<uint32_t>(steps.Take(2)));
        break;
      case 3:
        slot.Expect(static_cast<uint32_t>(steps.Take(4)));
        break;
      case 4: {
        const uint64_t place = steps.Take(8);
        slot.Find(place, steps.Take(8));
        break;
      }
      default: {
        const uint64_t place = steps.Take(1) << 32 | steps.Take(2);
        slot.Find(place, steps.Take(2));
      }
    }
  }
  return 0;
}
