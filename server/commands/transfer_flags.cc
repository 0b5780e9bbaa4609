#include "server/commands/transfer_flags.h"

#include <algorithm>
#include <string_view>

#include "CLI/CLI.hpp"
#include "absl/strings/str_split.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "server/commands/size_flag.h"

namespace tandem {

namespace {

constexpr char kTransferGroup[] = "Transfer of KV";

// Checks the value of --transport as CLI11 does: returns an error, or an empty text.
std::string CheckTransports(const std::string& text) {
  if (text == "auto") return "";
  const std::vector<std::string> names = absl::StrSplit(text, ',');
  for (const std::string& name : names) {
    if (name == "cuda_ipc") return "\"cuda_ipc\" is called ipc here: on a GPU it is that";
    if (std::ranges::find(kTransports, name) == std::ranges::end(kTransports)) {
      return fmt::format("\"{}\" is no transport: give auto, or some of {} with commas between",
                         name, fmt::join(kTransports, ", "));
    }
  }
  return "";
}

void AddTlsFlags(CLI::App& app, TlsFiles& tls) {
  app.add_option("--kv-tls-cert", tls.cert,
                 "certificate of this worker, a PEM file: KV travels by tcp with TLS, and every "
                 "worker must show a certificate that --kv-tls-ca vouches for")
      ->group(kTransferGroup);
  app.add_option("--kv-tls-key", tls.key, "the private key of --kv-tls-cert, a PEM file")
      ->group(kTransferGroup);
  app.add_option("--kv-tls-ca", tls.ca, "authorities whose workers are let in, a PEM file")
      ->group(kTransferGroup);
}

void AddDumpFlags(CLI::App& app, TransferTuning& tuning) {
  app.add_option(
         "--kv-dump", tuning.dump_directory,
         "a directory in which prefill workers leave a file of the KV of each hand-off, for "
         "`tandem inspect kv --file`. KV says much of its prompt: keep these files as you "
         "would keep the prompts")
      ->group(kTransferGroup);
  app.add_option("--kv-dump-bytes", tuning.dump_bytes,
                 "what the files of --kv-dump may take together at each worker, as 256MiB: then no "
                 "more are written")
      ->transform(SizeFlag(Kilo::k1024))
      ->capture_default_str()
      ->group(kTransferGroup);
}

void AddReservationFlags(CLI::App& app, TransferTuning& tuning) {
  app.add_option("--kv-lease-ms", tuning.lease_ms,
                 "how long a decode worker keeps blocks for a prefill worker that gives no sign of "
                 "life")
      ->check(CLI::Range(100, 600'000))
      ->capture_default_str()
      ->group(kTransferGroup);
  app.add_option("--max-waiting-reservations", tuning.max_waiting_reservations,
                 "requests that may wait for blocks of a decode worker; more are answered "
                 "RESOURCE_EXHAUSTED")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str()
      ->group(kTransferGroup);
  app.add_option("--max-reservation-wait", tuning.max_reservation_wait_seconds,
                 "seconds that a request waits for blocks of a decode worker at the most")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str()
      ->group(kTransferGroup);
}

}  // namespace

void AddTransferFlags(CLI::App& app, TransferTuning& tuning) {
  const std::string group = kTransferGroup;
  app.add_option("--kv-transport", tuning.transport,
                 "how KV may travel between workers: auto, or some of ipc (decode workers of the "
                 "host read the prefill workers' memory), nccl (from GPU to GPU), shm (through "
                 "shared memory of the host) and tcp, with commas between; each peer gets the "
                 "fastest that there is")
      ->check(CheckTransports)
      ->capture_default_str()
      ->group(group);
  app.add_option("--kv-buffer-bytes", tuning.buffer_bytes,
                 "shared memory that a prefill worker sets aside for KV under way, as 64MiB: each "
                 "decode worker that it sends to takes 4MiB (16MiB on a GPU, and no less than 4 "
                 "blocks of a layer), and when none is left the next one is reached by tcp")
      ->transform(SizeFlag(Kilo::k1024))
      ->check(CLI::Range(uint64_t{4} << 20, uint64_t{1} << 36))
      ->capture_default_str()
      ->group(group);
  app.add_option("--kv-bandwidth", tuning.bandwidth,
                 "KV that goes to each decode worker per second, as 500MB, for tests and "
                 "experiments; 0: as fast as it goes")
      ->transform(SizeFlag(Kilo::k1000))
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--kv-codec", tuning.codec,
         "how prefill workers encode KV for decode workers, without a bit lost: mask-rice "
         "(the smallest), f3, raw (not at all), auto: for each request what the measured rates of "
         "codecs and link make the fastest, or probe: as raw, and one block in 128 is encoded to "
         "measure what that would do. KV of --kv-dtype k8v8, k6v5 or k4v3 is always "
         "sent raw")
      ->check(CLI::IsMember({"auto", "raw", "f3", "mask-rice", "probe"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--kv-codec-threads", tuning.codec_threads,
                 "threads that encode KV at a prefill worker, and decode it at a decode worker; 0: "
                 "KV is neither sent nor taken encoded")
      ->check(CLI::Range(0, 256))
      ->capture_default_str()
      ->group(group);
  AddDumpFlags(app, tuning);
  AddTlsFlags(app, tuning.tls);
  AddReservationFlags(app, tuning);
  app.add_option(
         "--kv-probe", tuning.probe,
         "whether prefill workers measure the links to each decode worker, each with at most "
         "52 MB, when they meet and when one has become slow: on, off")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str()
      ->group(group);
}

}  // namespace tandem
