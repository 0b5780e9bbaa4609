#pragma once

#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "tests/support/forwarding_device.h"

namespace tandem {

// A device whose memory, once freed, waits for the next who wants as much. A GPU frees nothing
// before all of its work is done, also what waits for a peer: where both ends of a connection are
// on one device, the end of the one would wait for the other.
// Thread-safe.
class RecyclingDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  absl::StatusOr<DeviceBuffer> Allocate(size_t bytes) override {
    return Recycled(bytes, Of<0>(),
                    [this](size_t size) { return ForwardingDevice::Allocate(size); });
  }
  absl::StatusOr<DeviceBuffer> AllocateHost(size_t bytes) override {
    return Recycled(bytes, Of<1>(),
                    [this](size_t size) { return ForwardingDevice::AllocateHost(size); });
  }

 private:
  // What was made, for ever, and whether it is in use.
  struct Store {
    struct Piece {
      DeviceBuffer memory;
      bool used = false;
    };
    absl::Mutex mutex;
    std::multimap<size_t, Piece> pieces ABSL_GUARDED_BY(mutex);
    DeviceBuffer::Free give_back = nullptr;
  };

  template <int kKind>
  static Store& Of() {
    static Store& store = *new Store{.give_back = &GiveBack<kKind>};
    return store;
  }
  template <int kKind>
  static void GiveBack(std::byte* data, size_t size) {
    Store& store = Of<kKind>();
    absl::MutexLock lock(&store.mutex);
    for (auto [piece, end] = store.pieces.equal_range(size); piece != end; ++piece) {
      if (piece->second.memory.data() == data) piece->second.used = false;
    }
  }

  template <class Make>
  static absl::StatusOr<DeviceBuffer> Recycled(size_t bytes, Store& store, Make make) {
    if (bytes == 0) return DeviceBuffer();
    absl::MutexLock lock(&store.mutex);
    for (auto [piece, end] = store.pieces.equal_range(bytes); piece != end; ++piece) {
      if (!std::exchange(piece->second.used, true)) {
        return DeviceBuffer(piece->second.memory.data(), bytes, store.give_back);
      }
    }
    auto made = make(bytes);
    if (!made.ok()) return made.status();
    std::byte* const data = made->data();
    store.pieces.emplace(bytes, typename Store::Piece{.memory = *std::move(made), .used = true});
    return DeviceBuffer(data, bytes, store.give_back);
  }
};

}  // namespace tandem
