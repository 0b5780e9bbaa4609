#include "router/attempt/queue_move.h"

#include <algorithm>

namespace tandem {
namespace {

int32_t Queued(const WorkerView& worker) {
  return worker.load->waiting() + worker.load->handoffs().waiting_reservations();
}

// Whether the worker could begin a request of `width` sequences without queueing it.
bool HasRoom(const WorkerView& worker, int32_t width, int32_t context_tokens) {
  const int64_t free_tokens =
      int64_t{worker.AvailableBlocks()} * worker.info->layout.block_tokens();
  // Sequences that were sent to the worker and that its report does not contain yet.
  const int32_t unreported = std::max(0, worker.charged.sequences - worker.load->running());
  return Queued(worker) == 0 && !worker.load->starting() &&
         free_tokens >= int64_t{width + unreported} * context_tokens;
}

bool IsHalfAsBusy(const WorkerView& worker, const WorkerView& than, int32_t width) {
  return 2 * (worker.Sequences() + width) <= than.Sequences();
}

}  // namespace

bool QueueMove::IsDue(const WorkerView& worker, TimePoint now, Duration heartbeat) const {
  return HasWaited(now, heartbeat) && moves_ < kMaxMoves && Queued(worker) > 0;
}

bool QueueMove::MayFindBetter(const WorkerView& worker, const ClusterView& view, int32_t width,
                              int32_t context_tokens) {
  const auto has = [&](v1::WorkerRole role) {
    return std::ranges::any_of(view.workers, [&](const WorkerView& one) {
      return one.role == role && one.id != worker.id && one.usable() &&
             HasRoom(one, width, context_tokens) && IsHalfAsBusy(one, worker, width);
    });
  };
  return has(v1::WORKER_ROLE_UNIFIED) ||
         (has(v1::WORKER_ROLE_PREFILL) && has(v1::WORKER_ROLE_DECODE));
}

bool QueueMove::IsBetter(const WorkerView& worker, const RouteDecision& other,
                         const ClusterView& view, int32_t width, int32_t context_tokens) {
  if (other.prefill == worker.id || other.decode == worker.id) return false;
  const auto is_better = [&](const WorkerId& id) {
    const WorkerView* const one = view.Find(id);
    return one != nullptr && HasRoom(*one, width, context_tokens) &&
           IsHalfAsBusy(*one, worker, width);
  };
  return is_better(other.prefill) && (other.route == v1::ROUTE_UNIFIED || is_better(other.decode));
}

}  // namespace tandem
