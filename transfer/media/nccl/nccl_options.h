#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace tandem {

struct NcclOptions {
  // Where the medium listens for the sockets of its connections.
  std::string listen_host = "127.0.0.1";
  uint16_t listen_port = 0;     // 0: the system chooses
  std::string advertised_host;  // what address() names; empty: listen_host

  // The most payload of one operation, the same on all workers. A larger payload cannot be sent.
  size_t chunk_bytes = size_t{8} << 20;
  // How many operations this worker may send at once, to all peers together. 0: it only receives.
  size_t send_slots = 4;
  // How many connections this worker may accept, since each has one slot. 0: it only sends.
  size_t receive_slots = 8;

  // The time limit from a connected socket to a communicator on both sides.
  std::chrono::milliseconds init_timeout{10'000};
  // The time that an operation may take in addition to that which its bytes need. The first
  // operation of a connection may take init_timeout instead.
  std::chrono::milliseconds operation_grace{1'000};
  // An abort that takes longer is assumed never to end (Medium::health).
  std::chrono::milliseconds abort_patience{30'000};
};

// The device memory that OpenNcclMedium takes; 0 in a build without NCCL. NCCL itself takes more
// for each communicator, which is not counted.
size_t NcclDeviceBytes(const NcclOptions& options);

}  // namespace tandem
