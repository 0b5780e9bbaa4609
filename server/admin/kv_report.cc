#include "server/admin/kv_report.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "fmt/format.h"

namespace tandem {
namespace {

constexpr char kKvRow[] = "{:>5} {:<4} {:>13} {:>13} {:>6} {:>8} {:>11}  {}\n";
constexpr int kColumnsBeforeBar = 68;
constexpr int kFewestBarCells = 10;

// Bytes of K, of V, or of both, in one layer or summed over all layers.
struct KvSum {
  uint64_t kv_bytes = 0;
  uint64_t wire_bytes = 0;
  uint64_t escapes = 0;

  void Add(const KvSum& other) {
    kv_bytes += other.kv_bytes;
    wire_bytes += other.wire_bytes;
    escapes += other.escapes;
  }
};

KvSum KeysOf(const v1::KvLayerBytes& layer) {
  return {layer.k_kv_bytes(), layer.k_wire_bytes(), layer.k_escapes()};
}
KvSum ValuesOf(const v1::KvLayerBytes& layer) {
  return {layer.v_kv_bytes(), layer.v_wire_bytes(), layer.v_escapes()};
}

std::string RatioOf(uint64_t kv_bytes, uint64_t wire_bytes) {
  if (wire_bytes == 0) return "-";
  return fmt::format("{:.2f}", static_cast<double>(kv_bytes) / static_cast<double>(wire_bytes));
}

// Draws a bar for the bytes of K or V of a layer: solid for the bytes on the wire, light for those
// that the codec saved.
class KvBars {
 public:
  KvBars(const v1::KvHandoff& handoff, int columns)
      : cells_(std::max(kFewestBarCells, columns - kColumnsBeforeBar)) {
    for (const v1::KvLayerBytes& layer : handoff.layers()) {
      for (const KvSum& part : {KeysOf(layer), ValuesOf(layer)}) {
        most_bytes_ = std::max({most_bytes_, part.kv_bytes, part.wire_bytes});
      }
    }
  }

  std::string Of(const KvSum& part) const {
    const int wire = Cells(part.wire_bytes);
    std::string bar;
    for (int i = 0; i < wire; ++i) bar += "█";
    for (int i = wire; i < Cells(part.kv_bytes); ++i) bar += "░";
    return bar;
  }

 private:
  int Cells(uint64_t bytes) const {
    if (most_bytes_ == 0) return 0;
    const double share = static_cast<double>(bytes) / static_cast<double>(most_bytes_);
    return static_cast<int>(std::lround(share * cells_));
  }

  const int cells_;
  uint64_t most_bytes_ = 0;  // most bytes of the K or V of any layer
};

std::string PartRow(std::string_view layer, std::string_view name, const KvSum& part,
                    const std::string& raw_blocks, const std::string& bar) {
  std::string row =
      fmt::format(kKvRow, layer, name, part.kv_bytes, part.wire_bytes,
                  RatioOf(part.kv_bytes, part.wire_bytes), part.escapes, raw_blocks, bar);
  const size_t end = row.find_last_not_of(" \n");
  return row.substr(0, end + 1) + "\n";
}

std::string HeaderLine(const v1::RequestExplanation& request) {
  const v1::KvHandoff& handoff = request.handoff();
  std::string text = fmt::format("KV of request {}", request.request_id());
  if (!handoff.prefill_worker().empty()) {
    text += fmt::format(" from {} to {}", handoff.prefill_worker(), handoff.decode_worker());
  }
  return text + fmt::format("\n  {} prompt tokens, {} of them evicted before; class {}, codec {}\n",
                            request.prompt_tokens(), handoff.evicted_tokens(),
                            request.kv_quality().empty() ? "exact" : request.kv_quality(),
                            handoff.bytes().codec().empty() ? "raw" : handoff.bytes().codec());
}

}  // namespace

absl::Status CheckHandoff(const v1::RequestExplanation& request) {
  if (request.has_handoff()) return absl::OkStatus();
  if (request.has_outcome()) {
    return FailedPrecondition(
        "request_id={}: its KV was not handed off: it ran on one worker, or ended before",
        request.request_id());
  }
  return FailedPrecondition(
      "request_id={}: no prefill worker has reported its KV yet: ask again once the first tokens "
      "are "
      "there. A request on one worker hands nothing off",
      request.request_id());
}

std::string KvTable(const v1::KvHandoff& handoff, int columns) {
  if (handoff.layers().empty()) return "  the prefill worker has sent no KV of any layer\n";
  std::string table = fmt::format(kKvRow, "LAYER", "PART", "KV BYTES", "WIRE BYTES", "RATIO",
                                  "ESCAPES", "RAW BLOCKS", "█ sent ░ saved");
  const KvBars bars(handoff, columns);
  KvSum k;
  KvSum v;
  int64_t blocks = 0;
  int64_t raw_blocks = 0;
  for (int i = 0; i < handoff.layers_size(); ++i) {
    const v1::KvLayerBytes& layer = handoff.layers(i);
    table +=
        PartRow(std::to_string(i), "K", KeysOf(layer),
                fmt::format("{}/{}", layer.raw_blocks(), layer.blocks()), bars.Of(KeysOf(layer)));
    table += PartRow("", "V", ValuesOf(layer), "", bars.Of(ValuesOf(layer)));
    k.Add(KeysOf(layer));
    v.Add(ValuesOf(layer));
    blocks += layer.blocks();
    raw_blocks += layer.raw_blocks();
  }
  KvSum both = k;
  both.Add(v);
  return table + PartRow("all", "K", k, "", "") + PartRow("", "V", v, "", "") +
         PartRow("", "K+V", both, fmt::format("{}/{}", raw_blocks, blocks), "");
}

std::string HandoffText(const v1::RequestExplanation& request, int columns) {
  const v1::KvHandoff& handoff = request.handoff();
  const v1::KvBytes& bytes = handoff.bytes();
  std::string text = HeaderLine(request);
  text += fmt::format("  {} bytes of KV, {} on the wire ({}x)", bytes.raw(), bytes.wire(),
                      RatioOf(bytes.raw(), bytes.wire()));
  if (bytes.transfer_ms() > 0) text += fmt::format(", moved in {:.3f} ms", bytes.transfer_ms());
  text += "\n" + KvTable(handoff, columns);
  uint64_t payload = 0;
  for (const v1::KvLayerBytes& layer : handoff.layers()) {
    payload += layer.k_wire_bytes() + layer.v_wire_bytes();
  }
  if (bytes.wire() <= payload) return text;
  return text + fmt::format("  and {} bytes of frame headers, tables of the codec and the commit\n",
                            bytes.wire() - payload);
}

}  // namespace tandem
