#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/device.h"
#include "tests/support/channel_pair.h"
#include "transfer/media/host_medium.h"
#include "transfer/media/ipc/ipc_medium.h"
#include "transfer/media/memory_greeting.h"
#include "transfer/media/unix_socket.h"

// Both sides of an ipc connection on the CPU: one that shares, one that reads, one that lies.

namespace tandem {

inline constexpr size_t kPoolBytes = size_t{1} << 20;
inline constexpr int kSealed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

inline std::string Message(const absl::Status& status) { return std::string(status.message()); }

inline Device& Cpu() {
  static const std::unique_ptr<Device> device = NewCpuDevice();
  return *device;
}

inline void FillPattern(std::span<std::byte> bytes, uint64_t seed) {
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>((i * 31 + seed) >> 3);
}

inline std::unique_ptr<Medium> NewReceiver(Device& device = Cpu()) {
  return *OpenIpcMedium({.device = &device});
}

// A side that sends: a pool and what it shares of it.
struct Sender {
  explicit Sender(Device& device = Cpu()) {
    FillPattern(pool.bytes(), 1);
    FillPattern(probes.bytes(), 2);
    medium = *OpenIpcMedium({.device = &device, .shared = {pool.bytes(), probes.bytes()}});
  }

  DeviceBuffer pool = *Cpu().AllocateShared(kPoolBytes);
  DeviceBuffer probes = *Cpu().AllocateShared(4096);
  std::unique_ptr<Medium> medium;
};

// A sealed file of the host.
inline UniqueFd MemoryFile(size_t bytes, int seals = kSealed) {
  UniqueFd memory(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(memory.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(memory.get(), F_ADD_SEALS, seals), 0);
  return memory;
}

inline MemoryGreeting HostFiles(std::initializer_list<uint64_t> sizes) {
  MemoryGreeting greeting;
  for (uint64_t bytes : sizes) {
    greeting.segments.push_back({.kind = MemoryHandle::Kind::kHostFile, .bytes = bytes});
  }
  return greeting;
}

// Somebody who greets as the test says.
class FalseConnector {
 public:
  // How establishing ends on the accepting side.
  absl::Status Greet(std::span<const std::byte> bytes, std::vector<int> files) {
    socket_ = *ConnectUnix(ParseHostAddress(medium_->address())->name);
    EXPECT_EQ(SendWithDescriptors(socket_.get(), bytes, files), absl::OkStatus());
    channel_ = AwaitConnection(*medium_);
    return channel_->Establish().status();
  }
  absl::Status Greet(const MemoryGreeting& greeting, const std::vector<UniqueFd>& files) {
    std::vector<int> numbers;
    for (const UniqueFd& file : files) numbers.push_back(file.get());
    return Greet(EncodeMemoryGreeting(greeting), std::move(numbers));
  }
  // What it is answered.
  absl::StatusCode Answer() {
    std::array<std::byte, kMemoryAnswerBytes> answer;
    EXPECT_EQ(recv(socket_.get(), answer.data(), answer.size(), 0), ssize_t{kMemoryAnswerBytes});
    return *ParseMemoryAnswer(answer);
  }
  UniqueFd& socket() { return socket_; }
  ByteChannel& channel() { return *channel_; }

 private:
  const std::unique_ptr<Medium> medium_ = NewReceiver();
  UniqueFd socket_;
  std::unique_ptr<ByteChannel> channel_;
};

inline std::vector<UniqueFd> Files(std::initializer_list<size_t> sizes, int seals = kSealed) {
  std::vector<UniqueFd> files;
  for (size_t bytes : sizes) files.push_back(MemoryFile(bytes, seals));
  return files;
}

// Of this process.
inline size_t OpenDescriptors() {
  return static_cast<size_t>(std::ranges::distance(
      std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

// Of memory that is or was shared; the heap may grow as it likes.
inline size_t Mappings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:") != std::string::npos) ++count;
  }
  return count;
}

}  // namespace tandem
