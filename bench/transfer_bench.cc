// What it costs to move KV between two TCP transports of this machine: rate and CPU time of both
// sides together, hashing included, for extents of several sizes. Beside it, in the same run and
// turn by turn, the ceilings: a plain copy of the same bytes, their hash, and the same bytes
// through a bare socket with calls of 1 MiB.
//   transfer_bench [--mib N] [--repeats R] [--json FILE]
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/rng.h"
#include "kernels/cpu/device.h"
#include "nlohmann/json.hpp"
#include "transfer/tcp/socket.h"
#include "transfer/tcp/tcp_transport.h"

namespace tandem {
namespace {

constexpr uint32_t kExtentBytes[] = {8 << 10, 32 << 10, 256 << 10, 1 << 20};

// Puts block i at offset i * payload_bytes.
class PoolReceiver final : public FrameReceiver {
 public:
  explicit PoolReceiver(std::span<std::byte> pool) : pool_(pool) {}
  absl::StatusOr<std::span<std::byte>> Prepare(const FrameHeader& header) override {
    return pool_.subspan(size_t{header.block} * header.payload_bytes, header.payload_bytes);
  }
  void Landed(const FrameHeader&, const absl::Status& status) override {
    TANDEM_CHECK(status.ok(), "a payload was damaged on the loopback interface");
  }
  CommitAnswer Commit(const FrameHeader&) override { return {}; }
  absl::Status Renewed(uint64_t, uint64_t) override { return absl::OkStatus(); }

 private:
  const std::span<std::byte> pool_;
};

struct Cost {
  double wall_seconds = 0;
  double cpu_seconds = 0;
};

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return time.tv_sec + time.tv_usec / 1e6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Cost Measure(const std::function<void()>& body) {
  const double cpu = CpuSeconds();
  const auto begin = std::chrono::steady_clock::now();
  body();
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  return {.wall_seconds = wall.count(), .cpu_seconds = CpuSeconds() - cpu};
}

// Two ends of one blocking TCP connection.
struct SocketPair {
  UniqueFd sender;
  UniqueFd receiver;

  static SocketPair Open() {
    const UniqueFd listener = *Listen("127.0.0.1", 0);
    const HostPort place = {.host = "127.0.0.1", .port = std::to_string(LocalPort(listener))};
    SocketPair pair;
    pair.sender = *StartConnect(Resolve(place, NameLookup::kNumericOnly)->front());
    fcntl(listener.get(), F_SETFL, 0);
    pair.receiver = UniqueFd(accept(listener.get(), nullptr, nullptr));
    fcntl(pair.sender.get(), F_SETFL, 0);
    return pair;
  }
};

class Bench {
 public:
  explicit Bench(size_t bytes)
      : from_(*device_->Allocate(bytes)),
        to_(*device_->Allocate(bytes)),
        receiver_probe_(to_.bytes()),
        receiver_(*OpenTcpTransport({}, &receiver_probe_)),
        sender_(*OpenTcpTransport({}, nullptr)) {
    for (size_t i = 0; i < bytes; i += 16) {
      const auto words = Philox4x32(1, i, 0);
      std::memcpy(from_.data() + i, words.data(), 16);
    }
    Copy();  // touches every page of both
  }

  void Copy() { std::memcpy(to_.data(), from_.data(), from_.size()); }

  void Hash() { hash_ = Hash64(from_.bytes()); }

  void SendBare() {
    const auto all = [](size_t bytes, const auto& call) {
      constexpr size_t kCallBytes = 1 << 20;
      for (size_t done = 0; done < bytes;) {
        const ssize_t count = call(done, std::min(kCallBytes, bytes - done));
        TANDEM_CHECK(count > 0, "a bare socket failed");
        done += static_cast<size_t>(count);
      }
    };
    std::thread reader([&] {
      all(to_.size(), [&](size_t at, size_t count) {
        return read(sockets_.receiver.get(), to_.data() + at, count);
      });
    });
    all(from_.size(), [&](size_t at, size_t count) {
      return write(sockets_.sender.get(), from_.data() + at, count);
    });
    reader.join();
  }

  void Send(uint32_t extent_bytes) {
    absl::Notification done;
    absl::Status result;
    const uint64_t stream = ++last_stream_;
    const auto check = [](const absl::Status& status) {
      TANDEM_CHECK(status.ok(), "the transport refused");
    };
    check(sender_->OpenStream(receiver_->address(), stream, 1, Duration::zero(),
                              [&](uint64_t, uint64_t, const absl::Status& status) {
                                result = status;
                                done.Notify();
                              }));
    const auto count = static_cast<uint32_t>(from_.size() / extent_bytes);
    for (uint32_t block = 0; block < count; ++block) {
      check(sender_->Post(stream, 1, 0, block,
                          from_.bytes().subspan(size_t{block} * extent_bytes, extent_bytes)));
    }
    check(sender_->FinishStream(stream, 1));
    done.WaitForNotification();
    check(result);
  }

  // What was sent last is there. Clears it, so that the next check tells.
  void Verify() {
    TANDEM_CHECK(std::memcmp(from_.data(), to_.data(), from_.size()) == 0, "other bytes arrived");
    std::memset(to_.data(), 0, to_.size());
  }

 private:
  const std::unique_ptr<Device> device_ = NewCpuDevice();
  DeviceBuffer from_;
  DeviceBuffer to_;
  PoolReceiver receiver_probe_;
  std::unique_ptr<Transport> receiver_;
  std::unique_ptr<Transport> sender_;
  const SocketPair sockets_ = SocketPair::Open();
  uint64_t last_stream_ = 0;
  volatile uint64_t hash_ = 0;
};

nlohmann::json Summary(std::vector<Cost> costs, size_t bytes) {
  const auto median = [&](double Cost::*field) {
    std::vector<double> values;
    for (const Cost& cost : costs) values.push_back(cost.*field);
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  return {{"gb_per_s", gigabytes / median(&Cost::wall_seconds)},
          {"cpu_s_per_gb", median(&Cost::cpu_seconds) / gigabytes}};
}

int Run(size_t bytes, int repeats, const std::string& json_path) {
  Bench bench(bytes);
  std::vector<Cost> copies;
  std::vector<Cost> hashes;
  std::vector<Cost> bare;
  std::vector<std::vector<Cost>> sends(std::size(kExtentBytes));
  for (int repeat = 0; repeat < repeats; ++repeat) {
    copies.push_back(Measure([&] { bench.Copy(); }));
    hashes.push_back(Measure([&] { bench.Hash(); }));
    bare.push_back(Measure([&] { bench.SendBare(); }));
    bench.Verify();
    for (size_t i = 0; i < std::size(kExtentBytes); ++i) {
      sends[i].push_back(Measure([&] { bench.Send(kExtentBytes[i]); }));
      bench.Verify();
    }
  }
  nlohmann::json result = {{"bench", "transfer"},
                           {"transport", "tcp over the loopback interface"},
                           {"bytes", bytes},
                           {"repeats", repeats},
                           {"memcpy", Summary(copies, bytes)},
                           {"xxh3", Summary(hashes, bytes)},
                           {"bare_tcp", Summary(bare, bytes)},
                           {"extents", nlohmann::json::array()}};
  for (size_t i = 0; i < std::size(kExtentBytes); ++i) {
    nlohmann::json row = Summary(sends[i], bytes);
    row["extent_bytes"] = kExtentBytes[i];
    row["share_of_memcpy"] =
        row["gb_per_s"].get<double>() / result["memcpy"]["gb_per_s"].get<double>();
    row["share_of_bare_tcp"] =
        row["gb_per_s"].get<double>() / result["bare_tcp"]["gb_per_s"].get<double>();
    result["extents"].push_back(row);
  }
  std::puts(result.dump(2).c_str());
  if (!json_path.empty()) std::ofstream(json_path) << result.dump(2) << "\n";
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  size_t mib = 256;
  int repeats = 7;
  std::string json_path;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--mib") mib = static_cast<size_t>(std::max(1, std::atoi(argv[i + 1])));
    if (flag == "--repeats") repeats = std::max(1, std::atoi(argv[i + 1]));
    if (flag == "--json") json_path = argv[i + 1];
  }
  return tandem::Run(mib << 20, repeats, json_path);
}
