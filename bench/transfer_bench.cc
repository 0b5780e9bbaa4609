// What it costs to move KV from one process to another on this machine, hashed and verified: rate,
// and CPU time of both sides, per way of sending.
//   transfer_bench [--repeats 9] [--streams 200] [--filter TEXT] [--ways TEXT]
//                  [--device cpu|cuda:0] [--scale 1] [--machine TEXT] [--commit TEXT]
//                  [--json FILE]
// Loads are the extents of prompts in a model of 24 layers, 8 KV heads of 64, bf16, blocks of 16
// tokens (32 KiB each), and the same bytes in extents of other sizes. Beside every stream, turn by
// turn in an order that rotates, the ceilings move the same bytes between the same processes: a
// copy in and a copy out of a ring of shared memory, one copy out of the other's memory, a bare TCP
// socket, and the hash alone. Each goes between places that nothing touched for longest, going
// round the pools: so does a hand-off, whose blocks are those that were free or unused for longest,
// and what a place still has in caches depends on what moved there last (it is worth up to a half).
// With KV in the memory of a GPU (--device), the copies in and out of the ring go through
// page-locked memory, and there is no TCP. Shares are medians of the ratio within a turn; loads of
// less than 96 MiB take more turns. --filter takes the loads whose name holds the text, --ways the
// transports, beside the ceilings; --scale makes all loads larger or smaller, --machine and
// --commit are named in the results. Last, what a hand-off of one block costs: streams of 24
// extents, from opening to the acknowledgement.
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "base/process.h"
#include "base/rng.h"
#include "base/status.h"
#include "bench/flags.h"
#include "bench/result.h"
#include "bench/transfer_paths.h"
#include "bench/transfer_peer.h"
#include "kernels/cpu/device.h"
#include "kernels/registry.h"
#include "nlohmann/json.hpp"
#include "tests/support/test_certificates.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr size_t kRingBytes = size_t{4} << 20;
constexpr uint32_t kLayers = 24;
constexpr uint32_t kExtentBytes = 32 << 10;
constexpr uint32_t kMaxExtentBytes = 1 << 20;
constexpr uint32_t kBlockTokens = 16;

struct Flags {
  int32_t repeats = 9;
  int32_t streams = 200;
  std::string filter;
  std::string ways;
  std::string device = "cpu";
  std::string machine = MachineName();
  std::string commit;
  double scale = 1;
  std::string json_path;
};

struct Cost {
  double seconds = 0;
  double sender_cpu_seconds = 0;
  double receiver_cpu_seconds = 0;
};

// The KV of a prompt, for a model of so many layers.
Load PromptLoad(uint32_t tokens, double scale) {
  const auto blocks = static_cast<uint32_t>(scale * tokens / kBlockTokens);
  return {.name = fmt::format("prompt of {} tokens", tokens),
          .extent_bytes = kExtentBytes,
          .layers = kLayers,
          .blocks = std::max(blocks, 1U)};
}

Load SizedLoad(uint32_t extent_bytes, double scale) {
  const auto blocks = static_cast<uint32_t>(PromptLoad(2048, scale).bytes() / extent_bytes);
  return {.name = fmt::format("extents of {} KiB", extent_bytes >> 10),
          .extent_bytes = extent_bytes,
          .blocks = std::max(blocks, 1U)};
}

std::vector<Load> Loads(double scale) {
  return {PromptLoad(512, scale),      PromptLoad(2048, scale),
          PromptLoad(8192, scale),     SizedLoad(8 << 10, scale),
          SizedLoad(256 << 10, scale), SizedLoad(kMaxExtentBytes, scale)};
}

// Whole prompts of one block are sent whatever the scale.
size_t LargestOf(const std::vector<Load>& loads) {
  size_t bytes = PromptLoad(kBlockTokens, 1).bytes();
  for (const Load& load : loads) bytes = std::max(bytes, load.bytes());
  return bytes;
}

// One way of moving the bytes of a load, a ceiling or a transport, and what it cost turn by turn.
struct Way {
  std::string name;
  bool moves_bytes = true;  // into the receiver's pool
  std::function<void(const Load&)> send;
  std::vector<Cost> costs;

  double Middle(double Cost::*field) const {
    std::vector<double> values;
    for (const Cost& cost : costs) values.push_back(cost.*field);
    return Median(std::move(values));
  }
  // The share of the rate of `ceiling`.
  double ShareOf(const Way& ceiling) const {
    std::vector<double> shares;
    for (size_t i = 0; i < costs.size(); ++i) {
      shares.push_back(ceiling.costs[i].seconds / costs[i].seconds);
    }
    return Median(std::move(shares));
  }
};

// In a folder that nobody else can read.
TlsFiles NewCertificate() {
  char folder[] = "/tmp/transfer_bench.XXXXXX";
  TANDEM_CHECK(mkdtemp(folder) != nullptr, "no folder for certificates");
  return TestAuthority(folder, "authority").Issue("bench");
}

PoolPart PartOf(const Load& load) { return {.offset = load.offset(), .bytes = load.bytes()}; }

// The first ways; the last two only where KV lies in the host's memory.
enum Ceiling : size_t { kRing, kRead, kSocket, kHash };

struct Target {
  std::string_view way;
  Ceiling ceiling;
  double least;  // share of it
};

std::vector<Target> TargetsOf(const Device& device) {
  if (device.is_host()) return {{"shm", kRing, 0.7}, {"ipc", kRing, 0.7}, {"tcp", kSocket, 0.6}};
  return {{"shm", kRing, 0.8}, {"ipc", kRead, 0.8}};
}

class TransferBench {
 public:
  explicit TransferBench(const Flags& flags)
      : flags_(flags), loads_(Loads(flags.scale)), source_(*cpu_->Allocate(LargestOf(loads_))) {
    for (size_t i = 0; i < source_.size(); i += 16) {
      const auto words = Philox4x32(1, i, 0);
      std::memcpy(source_.data() + i, words.data(), 16);
    }
    receiver_ =
        std::make_unique<ReceiverProcess>(flags_.device, source_.bytes(), kRingBytes,
                                          [this](Device& device, FrameReceiver& receiver) {
                                            return OpenReceivers(options_, device, receiver);
                                          });
    OpenPool();
    paths_ = OpenSenders(options_, *backend_->device, pool_.bytes(), receiver_->addresses());
    std::filesystem::remove_all(std::filesystem::path(options_.tls.ca).parent_path());
    AddCeilings();
    for (SendingPath& path : paths_) {
      if (path.name().find(flags_.ways) == std::string::npos) continue;
      ways_.push_back(
          {path.name(), true, [&path, this](const Load& load) { path.Send(load, pool_.bytes()); }});
    }
  }

  Json Run() {
    Json rows = Json::array();
    Json targets = Json::array();
    for (const Load& load : loads_) {
      if (load.name.find(flags_.filter) == std::string::npos) continue;
      MeasureRates(load);
      for (const Way& way : ways_) rows.push_back(RateRow(load, way));
      if (load.layers > 1) AddTargets(load, targets);
    }
    return {{"bench", "transfer"},           {"machine", flags_.machine},
            {"device", flags_.device},       {"date", Today()},
            {"repeats", flags_.repeats},     {"ring_bytes", kRingBytes},
            {"streams", flags_.streams},     {"rates", std::move(rows)},
            {"targets", std::move(targets)}, {"latencies", MeasureLatencies()},
            {"buffers", Buffers()}};
  }

 private:
  // The device, after the fork, and in its memory what the receiving process compares with.
  void OpenPool() {
    auto backend = OpenBackend(flags_.device, {});
    TANDEM_CHECK(backend.ok(), backend.status().ToString());
    backend_ = *std::move(backend);
    Device& device = *backend_->device;
    auto pool = device.AllocateShared(source_.size());
    TANDEM_CHECK(pool.ok(), pool.status().ToString());
    pool_ = *std::move(pool);
    const auto stream = *device.NewStream();
    TANDEM_CHECK(stream->Copy(pool_.bytes(), source_.bytes()).ok() && stream->Synchronize().ok(),
                 "the pool cannot be filled");
    relay_.emplace(device);
    receiver_->Show(device, pool_.bytes());
  }

  void AddCeilings() {
    const std::span<const std::byte> pool = pool_.bytes();
    ways_.push_back({"copy through shared memory", true, [=, this](const Load& load) {
                       receiver_->SendByRing(*relay_, pool, PartOf(load));
                     }});
    ways_.push_back({"one copy out of its memory", true,
                     [this](const Load& load) { receiver_->ReadMemory(PartOf(load)); }});
    if (!backend_->device->is_host()) return;
    ways_.push_back({"bare TCP socket", true,
                     [=, this](const Load& load) { receiver_->SendBySocket(pool, PartOf(load)); }});
    ways_.push_back({"hash alone", false,
                     [=, this](const Load& load) { hash_ = Hash64(PartOf(load).Of(pool)); }});
  }

  // Where nothing was for longest.
  Load Placed(Load load) {
    const size_t places = pool_.size() / load.bytes();
    load.first = static_cast<uint32_t>(num_placed_++ % places) * load.extents();
    return load;
  }

  Cost Measure(const Way& way, const Load& load) {
    const double sender = CpuSeconds();
    const double receiver = receiver_->CpuSeconds();
    const auto begin = std::chrono::steady_clock::now();
    way.send(load);
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
    const Cost cost = {.seconds = wall.count(),
                       .sender_cpu_seconds = CpuSeconds() - sender,
                       .receiver_cpu_seconds = receiver_->CpuSeconds() - receiver};
    TANDEM_CHECK(!way.moves_bytes || receiver_->HasAll(PartOf(load)), "other bytes arrived");
    return cost;
  }

  // The first turn, in which connections are made and pages touched, does not count.
  void MeasureRates(const Load& load) {
    for (Way& way : ways_) way.costs.clear();
    const auto turns = static_cast<int32_t>(
        std::max<size_t>(1, PromptLoad(2048, flags_.scale).bytes() / load.bytes()) *
        flags_.repeats);
    for (int32_t turn = -1; turn < turns; ++turn) {
      for (size_t i = 0; i < ways_.size(); ++i) {
        Way& way = ways_[(i + static_cast<size_t>(turn + 1)) % ways_.size()];
        const Cost cost = Measure(way, Placed(load));
        if (turn >= 0) way.costs.push_back(cost);
      }
    }
  }

  Json RateRow(const Load& load, const Way& way) const {
    const double gigabytes = static_cast<double>(load.bytes()) / 1e9;
    Json row = {{"load", load.name},
                {"extent_bytes", load.extent_bytes},
                {"bytes", load.bytes()},
                {"way", way.name},
                {"gb_per_s", gigabytes / way.Middle(&Cost::seconds)},
                {"sender_cpu_s_per_gb", way.Middle(&Cost::sender_cpu_seconds) / gigabytes},
                {"receiver_cpu_s_per_gb", way.Middle(&Cost::receiver_cpu_seconds) / gigabytes},
                {"share_of_shared_memory", way.ShareOf(ways_[kRing])},
                {"share_of_read", way.ShareOf(ways_[kRead])}};
    fmt::print("{:24} {:28} {:6.2f} GB/s  {:4.0f}% of shared memory {:4.0f}% of one copy",
               load.name, way.name, row["gb_per_s"].get<double>(),
               100 * row["share_of_shared_memory"].get<double>(),
               100 * row["share_of_read"].get<double>());
    if (backend_->device->is_host()) {
      row["share_of_socket"] = way.ShareOf(ways_[kSocket]);
      fmt::print(" {:4.0f}% of a socket", 100 * row["share_of_socket"].get<double>());
    }
    fmt::print("\n");
    return row;
  }

  void AddTargets(const Load& load, Json& targets) const {
    for (const Target& target : TargetsOf(*backend_->device)) {
      const auto way = std::ranges::find(ways_, target.way, &Way::name);
      if (way == ways_.end()) continue;
      const double share = way->ShareOf(ways_[target.ceiling]);
      targets.push_back({{"load", load.name},
                         {"way", way->name},
                         {"share", share},
                         {"of", ways_[target.ceiling].name},
                         {"least", target.least},
                         {"met", share >= target.least},
                         {"verdict", share >= target.least ? "met" : "missed"}});
    }
  }

  // Streams of one block per layer, way by way in turns.
  Json MeasureLatencies() {
    const Load plain = PromptLoad(kBlockTokens, 1);
    std::vector<std::vector<double>> us(ways_.size());
    for (int32_t turn = 0; turn < flags_.streams; ++turn) {
      for (size_t i = 0; i < ways_.size(); ++i) {
        if (!ways_[i].moves_bytes) continue;
        const Load load = Placed(plain);
        const auto begin = std::chrono::steady_clock::now();
        ways_[i].send(load);
        const std::chrono::duration<double, std::micro> wall =
            std::chrono::steady_clock::now() - begin;
        us[i].push_back(wall.count());
      }
    }
    Json rows = Json::array();
    for (size_t i = 0; i < ways_.size(); ++i) {
      if (us[i].empty()) continue;
      std::sort(us[i].begin(), us[i].end());
      rows.push_back({{"way", ways_[i].name},
                      {"extents", plain.extents()},
                      {"bytes", plain.bytes()},
                      {"median_us", us[i][us[i].size() / 2]},
                      {"p90_us", us[i][us[i].size() * 9 / 10]}});
      fmt::print("{:24} {:28} {:6.0f} us median {:6.0f} us p90\n", plain.name, ways_[i].name,
                 rows.back()["median_us"].get<double>(), rows.back()["p90_us"].get<double>());
    }
    return rows;
  }

  Json Buffers() const {
    Json rows = Json::array();
    for (const SendingPath& path : paths_) {
      rows.push_back({{"way", path.name()}, {"bytes", path.transport().stats().buffer_bytes}});
    }
    return rows;
  }

  const Flags flags_;
  const std::vector<Load> loads_;
  const PathOptions options_ = {.extent_bytes = kMaxExtentBytes, .tls = NewCertificate()};
  const std::unique_ptr<Device> cpu_ = NewCpuDevice();
  const DeviceBuffer source_;
  std::unique_ptr<ReceiverProcess> receiver_;
  std::optional<Backend> backend_;  // since the fork
  DeviceBuffer pool_;
  std::optional<RelayEnd> relay_;
  std::vector<SendingPath> paths_;
  std::vector<Way> ways_;
  size_t num_placed_ = 0;
  volatile uint64_t hash_ = 0;
};

absl::Status Main(int argc, char** argv) {
  Flags flags;
  FlagParser parser;
  parser.Count("--repeats", flags.repeats);
  parser.Count("--streams", flags.streams);
  parser.Text("--filter", flags.filter);
  parser.Text("--ways", flags.ways);
  parser.Text("--device", flags.device);
  parser.Text("--machine", flags.machine);
  parser.Text("--commit", flags.commit);
  parser.Real("--scale", flags.scale);
  parser.Text("--json", flags.json_path);
  RETURN_IF_ERROR(parser.Parse(argc, argv));
  Json result = TransferBench(flags).Run();
  result["command"] = CommandLine(argc, argv);
  return WriteJson(result, flags.json_path);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::LockWithoutLookingForDeadlocks();
  return tandem::ExitCode("transfer_bench", tandem::Main(argc, argv));
}
