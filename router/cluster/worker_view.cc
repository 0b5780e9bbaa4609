#include "router/cluster/worker_view.h"

#include <algorithm>

#include "fmt/format.h"

namespace tandem {

LoadReport::LoadReport(std::shared_ptr<const v1::WorkerLoad> message)
    : message_(std::move(message)),
      sequences_(message_->running() + message_->waiting()),
      available_blocks_(message_->free_blocks() + message_->kv().idle_blocks()),
      waiting_prompt_tokens_(message_->waiting_prompt_tokens()),
      ready_(message_->not_ready().empty()),
      starting_(message_->starting()) {}

int32_t WorkerView::Sequences() const { return std::max(load.sequences(), charged.sequences); }

int64_t WorkerView::PendingPromptTokens() const {
  return std::max(load.waiting_prompt_tokens(), charged.prompt_tokens);
}

std::string_view Name(v1::WorkerRole role) {
  switch (role) {
    case v1::WORKER_ROLE_UNIFIED:
      return "unified";
    case v1::WORKER_ROLE_PREFILL:
      return "prefill";
    case v1::WORKER_ROLE_DECODE:
      return "decode";
    default:  // protobuf enums are open: a newer peer may send more
      return "unknown";
  }
}

std::string RoleAndName(const WorkerRef& worker) {
  return fmt::format("{} worker {}", Name(worker.role), worker.id.name);
}

}  // namespace tandem
