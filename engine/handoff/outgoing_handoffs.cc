#include "engine/handoff/outgoing_handoffs.h"

#include <optional>

namespace tandem {

void OutgoingHandoffs::Open(SubmitMessage& message) {
  if (!message.target || message.outgoing) return;
  message.outgoing = core_.sender.Open(message.request, *message.target);
}

void OutgoingHandoffs::Commit(Sequence& root) {
  const absl::Status status = core_.sender.Commit(root);
  if (!status.ok()) return core_.requests.End(root.request, status);
  core_.scheduler.Park(root.id);
}

void OutgoingHandoffs::Ended(const StreamEndedMessage& message) {
  RequestState* const request = core_.requests.Find(message.request);
  if (request == nullptr || !request->outgoing()) return;
  const std::optional<absl::Status> end = core_.sender.Ended(*request, message);
  if (!end) return;
  if (!end->ok()) return core_.requests.End(*request, *end);
  ++num_sent_;
  core_.requests.End(*request, {.reason = FinishReason::kHandedOff,
                                .kv = core_.sender.Report(*request, message.at)});
}

void OutgoingHandoffs::ReopenLost(TimePoint now) {
  for (const RequestId id : core_.sender.TakeDue(now)) {
    RequestState* const request = core_.requests.Find(id);
    if (request == nullptr || !request->outgoing()) continue;
    Sequence& root = core_.requests.Get(request->sequences.front());
    const absl::Status status = core_.sender.Reopen(root, now);
    if (!status.ok()) core_.requests.End(*request, status);
  }
}

}  // namespace tandem
