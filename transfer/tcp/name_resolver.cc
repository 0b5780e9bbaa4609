#include "transfer/tcp/name_resolver.h"

#include <utility>

namespace tandem {

NameResolver::~NameResolver() {
  questions_.Close();
  if (thread_.joinable()) thread_.join();
}

bool NameResolver::Resolve(uint64_t ticket, HostPort peer) {
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  return questions_.TryPush({.ticket = ticket, .peer = std::move(peer)});
}

void NameResolver::Run() {
  while (!questions_.closed()) {
    for (const Question& question : questions_.WaitAndDrain(kNoDeadline)) {
      if (questions_.closed()) return;
      done_(question.ticket, tandem::Resolve(question.peer, NameLookup::kByName));
    }
  }
}

}  // namespace tandem
