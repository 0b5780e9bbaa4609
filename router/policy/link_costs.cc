#include "router/policy/link_costs.h"

#include <utility>

#include "base/dtype.h"
#include "base/kv_row.h"

namespace tandem {
namespace {

constexpr double kBytesPerGigabyte = 1e9;
// Limits beyond what any model has, so that the bytes of a whole prompt fit in 64 bits.
constexpr double kMostBytesPerToken = 1 << 30;
constexpr int32_t kMostLayers = 1 << 14;
constexpr int32_t kMostBlockTokens = 1 << 16;

// The rate in GB/s at which a link carries KV, which may travel encoded. A link that was full shows
// what it carries; otherwise the probe tells, which is shorter than most hand-offs.
double RateOf(const v1::LinkStatus& link) {
  const double payload = link.gb_per_s() > 0 ? link.gb_per_s() : link.probe_gb_per_s();
  return link.kv_ratio() > 0 ? payload * link.kv_ratio() : payload;
}

std::optional<LinkModel> ModelOf(const v1::LinkStatus& link) {
  if (link.peer().empty() || !link.failure().empty() || !link.unreachable().empty()) {
    return std::nullopt;
  }
  LinkModel model{.setup = ModelTime(link.setup_us() * 1e-3),
                  .operation = ModelTime(link.operation_us() * 1e-3),
                  .bytes_per_second = RateOf(link) * kBytesPerGigabyte};
  // Values that were not measured, or that no link can have.
  if (!model.Validate().ok()) return std::nullopt;
  return model;
}

}  // namespace

absl::flat_hash_map<std::string_view, LinkModel> LinksOf(const WorkerView& prefill) {
  struct Found {
    LinkModel model;
    bool in_use = false;
  };
  absl::flat_hash_map<std::string_view, Found> found;
  for (const v1::LinkStatus& link : prefill.load->links()) {
    std::optional<LinkModel> model = ModelOf(link);
    if (!model) continue;
    Found& best = found[link.peer()];
    const bool is_better = link.in_use() != best.in_use
                               ? link.in_use()
                               : model->bytes_per_second > best.model.bytes_per_second;
    if (is_better) best = {*std::move(model), link.in_use()};
  }
  absl::flat_hash_map<std::string_view, LinkModel> links;
  for (auto& [peer, one] : found) links.emplace(peer, std::move(one.model));
  return links;
}

std::optional<KvTransferShape> KvOf(const WorkerView& prefill) {
  const v1::KvLayout& layout = prefill.info->layout;
  const std::optional<DType> dtype = DTypeFromName(layout.dtype());
  if (!dtype || layout.num_layers() < 1 || layout.block_tokens() < 1) return std::nullopt;
  // A double, because the product of what a worker reports may be too large for an integer.
  const double bytes = 1.0 * layout.num_layers() * layout.num_kv_heads() *
                       static_cast<double>(KvHeadBytes(*dtype, layout.head_dim()));
  if (!(bytes > 0) || bytes > kMostBytesPerToken || layout.num_layers() > kMostLayers ||
      layout.block_tokens() > kMostBlockTokens) {
    return std::nullopt;
  }
  return KvTransferShape{.bytes_per_token = static_cast<int64_t>(bytes),
                         .layers = layout.num_layers(),
                         .block_tokens = layout.block_tokens()};
}

}  // namespace tandem
