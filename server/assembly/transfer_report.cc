#include "server/assembly/transfer_report.h"

namespace tandem {
namespace {

double Microseconds(Duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

}  // namespace

v1::LinkStatus ToProto(const PeerLink& link) {
  v1::LinkStatus status;
  status.set_peer(link.peer);
  status.set_transport(link.stats.transport);
  status.set_probe_gb_per_s(link.stats.probe_gigabytes_per_second);
  status.set_gb_per_s(link.stats.gigabytes_per_second);
  status.set_setup_us(Microseconds(link.stats.probe_setup));
  status.set_operation_us(Microseconds(link.stats.probe_operation));
  status.set_bytes(link.stats.payload_bytes);
  status.set_fallbacks(link.fallbacks);
  status.set_fallback_reason(link.fallback_reason);
  status.set_resent_frames(link.stats.resent_frames);
  status.set_bytes_in_flight(link.stats.bytes_in_flight);
  status.set_in_use(link.in_use);
  status.set_failure(link.failure);
  status.set_best_probe_gb_per_s(link.stats.best_gigabytes_per_second);
  status.set_fastest_gb_per_s(link.stats.fastest_gigabytes_per_second);
  status.set_probe_failure(link.probe_failure);
  status.set_unreachable(link.unreachable);
  return status;
}

void AddRefused(const RefusedFrames& refused, v1::HandoffUse& handoffs) {
  handoffs.set_corrupted_frames(refused.corrupted);
  handoffs.set_stale_frames(refused.stale);
  handoffs.set_unauthenticated_frames(refused.unauthenticated + refused.malformed);
  handoffs.set_connections_closed(refused.closed);
}

void AddTransfers(const Fabric& fabric,
                  const std::function<double(const std::string&)>& kv_ratio_to,
                  v1::WorkerLoad& load) {
  for (const PeerLink& link : fabric.peer_links()) {
    v1::LinkStatus& status = *load.add_links();
    status = ToProto(link);
    // The codec is chosen for the link that the latest stream took, so only that link has a ratio.
    if (link.in_use) status.set_kv_ratio(kv_ratio_to(link.address));
  }
  v1::HandoffUse& handoffs = *load.mutable_handoffs();
  const TransportStats stats = fabric.stats();
  AddRefused(stats.refused, handoffs);
  handoffs.set_buffer_bytes(stats.buffer_bytes);
}

void AddLeftOut(std::span<const LeftOut> left_out, v1::WorkerLoad& load) {
  for (const LeftOut& one : left_out) {
    v1::LinkStatus& link = *load.add_links();
    link.set_transport(one.transport);
    link.set_failure(one.reason);
  }
}

}  // namespace tandem
