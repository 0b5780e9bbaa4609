#include "server/transfer_flags.h"

#include "CLI/CLI.hpp"
#include "fmt/format.h"
#include "transfer/frame.h"

namespace tandem {

void AddTransferFlags(CLI::App& app, TransferTuning& tuning) {
  const std::string group = "Transfer of KV";
  app.add_option("--kv-transport", tuning.transport,
                 "how KV travels between workers: auto (for each peer the fastest way that there "
                 "is), shm (shared memory of one host) or tcp alone")
      ->check(CLI::IsMember({"auto", "shm", "tcp"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--kv-buffer-bytes", tuning.buffer_bytes,
                 "shared memory that a decode worker sets aside for KV under way, as 64MiB; each "
                 "4MiB take one connection, those without a place travel by tcp")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(uint64_t{4} << 20, uint64_t{1} << 36))
      ->capture_default_str()
      ->group(group);
  app.add_option("--kv-connections", tuning.connections,
                 "connections to each decode worker, over which KV is spread")
      ->check(CLI::Range(1, static_cast<int>(kMaxGroupConnections)))
      ->capture_default_str()
      ->group(group);
  app.add_option("--kv-bandwidth", tuning.bandwidth,
                 "KV that goes to each decode worker per second, as 500MB, for tests and "
                 "experiments; 0: as fast as it goes")
      ->transform(CLI::AsSizeValue(true))
      ->capture_default_str()
      ->group(group);
  app.add_option("--kv-probe", tuning.probe,
                 "whether prefill workers measure the ways to each decode worker, with at most "
                 "100 MB, when they meet: on, off")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str()
      ->group(group);
}

std::vector<std::string> TransferArguments(const TransferTuning& tuning) {
  return {fmt::format("--kv-transport={}", tuning.transport),
          fmt::format("--kv-buffer-bytes={}", tuning.buffer_bytes),
          fmt::format("--kv-connections={}", tuning.connections),
          fmt::format("--kv-bandwidth={}", tuning.bandwidth),
          fmt::format("--kv-probe={}", tuning.probe)};
}

}  // namespace tandem
