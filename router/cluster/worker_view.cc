#include "router/cluster/worker_view.h"

#include <algorithm>

#include "fmt/format.h"

namespace tandem {

int32_t WorkerView::Sequences() const {
  return std::max(load->running() + load->waiting(), charged.sequences);
}

int64_t WorkerView::PendingPromptTokens() const {
  return std::max<int64_t>(load->waiting_prompt_tokens(), charged.prompt_tokens);
}

int32_t WorkerView::AvailableBlocks() const {
  return load->free_blocks() + load->kv().idle_blocks();
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
