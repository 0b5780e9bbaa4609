// A ring and an area of shared memory whose other side writes whatever it likes into the control
// words. The first byte chooses their size, the rest are steps: one byte says which, the bytes
// after it are their operands. Each lies in memory of exactly its size, so that a sanitizer sees
// every step outside.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "base/check.h"
#include "tests/fuzz/steps.h"
#include "transfer/media/shm/area.h"
#include "transfer/media/shm/ring.h"

namespace tandem {
namespace {

class HostileRing {
 public:
  explicit HostileRing(size_t size)
      : memory_(size), writer_(control_, memory_), reader_(control_, memory_) {}

  void Do(Steps& steps) {
    switch (steps.Take(1) % 9) {
      case 0:
        return control_.tail.store(steps.Take(8));
      case 1:
        return control_.head.store(steps.Take(8));
      case 2:  // near what is right, where off-by-one errors live
        return control_.tail.store(control_.head.load() + steps.Take(2));
      case 3:
        control_.reader_sleeps.store(static_cast<uint32_t>(steps.Take(4)));
        return control_.writer_sleeps.store(static_cast<uint32_t>(steps.Take(4)));
      case 4:
        return Put(steps.Take(2));
      case 5:
        return Get(steps.Take(2));
      case 6:
        (void)writer_.Publish();
        return (void)writer_.Arm();
      case 7:
        (void)reader_.Release();
        return (void)reader_.Arm();
      default:
        (void)writer_.Disarm();
        return (void)reader_.Disarm();
    }
  }

 private:
  void Put(size_t size) {
    const std::vector<std::byte> bytes(size, std::byte{0xAB});
    const auto count = writer_.Put(bytes);
    TANDEM_CHECK(!count.ok() || *count <= std::min(size, memory_.size()), "more than fits");
  }
  void Get(size_t size) {
    std::vector<std::byte> bytes(size);
    const auto count = reader_.Get(bytes);
    TANDEM_CHECK(!count.ok() || *count <= std::min(size, memory_.size()), "more than there is");
  }

  RingControl control_{};
  std::vector<std::byte> memory_;
  RingWriter writer_;
  RingReader reader_;
};

class HostileArea {
 public:
  explicit HostileArea(size_t size)
      : memory_(size), writer_(control_, memory_, size / 4), reader_(control_, memory_) {}

  void Do(Steps& steps) {
    switch (steps.Take(1) % 5) {
      case 0:
        return control_.released.store(steps.Take(8));
      case 1:  // near what is right
        return control_.released.store(control_.released.load() + steps.Take(2));
      case 2:
        return Write(steps.Take(2));
      case 3:
        return Read(steps.Take(8), steps.Take(2));
      default:
        (void)writer_.Arm();
        return (void)reader_.Release(steps.Take(8));
    }
  }

 private:
  void Write(size_t size) {
    const auto room = writer_.Room();
    if (!room.ok() || size > *room) return;
    std::ranges::fill(writer_.At(writer_.Take(size), size), std::byte{0xAB});
  }
  void Read(uint64_t place, size_t size) {
    const auto found = reader_.Find(place, size);
    if (!found.ok()) return;
    TANDEM_CHECK(found->size() == size, "another size than was asked for");
    sum_ += std::accumulate(found->begin(), found->end(), uint64_t{0}, [](uint64_t sum, auto byte) {
      return sum + std::to_integer<uint64_t>(byte);
    });
  }

  AreaControl control_{};
  std::vector<std::byte> memory_;
  AreaWriter writer_;
  AreaReader reader_;
  uint64_t sum_ = 0;
};

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  tandem::Steps steps(std::span(data, size).subspan(1));
  const size_t bytes = 4 + size_t{data[0]} * 17;
  tandem::HostileRing ring(bytes);
  tandem::HostileArea area(bytes);
  while (!steps.done()) {
    ring.Do(steps);
    area.Do(steps);
  }
  return 0;
}
