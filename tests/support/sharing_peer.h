#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "kernels/device.h"

namespace tandem {

// What a peer writes into memory for `seed`.
std::vector<std::byte> SharedContent(uint64_t seed, size_t bytes);

// Another process with a device of its own, which does what the test tells it to. Thread: one at a
// time.
class SharingPeer {
 public:
  // First of all in main: peers are forked by a process that has touched no device, since CUDA does
  // not live through a fork. `prepare` runs in each peer before it opens its device.
  static void StartNursery(void (*prepare)(int choice) = nullptr);

  SharingPeer(std::string_view backend, int choice = 0);
  // Ends the process.
  ~SharingPeer();
  SharingPeer(const SharingPeer&) = delete;
  SharingPeer& operator=(const SharingPeer&) = delete;

  // Memory there that is shared from then on, with the content of `seed`; one at a time.
  absl::StatusOr<MemoryHandle> Allocate(size_t bytes, uint64_t seed);
  absl::Status Fill(uint64_t seed);
  absl::Status Free();
  // Opens memory there; one at a time.
  absl::Status Open(const MemoryHandle& handle);
  // Copies what is open into memory of the peer's own, in extents, and returns the XXH3-64 of the
  // whole as its host then sees it; DATA_LOSS when a hash of the copies is another.
  absl::StatusOr<uint64_t> Read();
  // SIGKILL; returns when the process is gone.
  void Kill();

 private:
  struct Answer;
  Answer Ask(struct SharingOrder order, int file);

  UniqueFd socket_;
  pid_t process_ = 0;
};

}  // namespace tandem
