#include "transfer/media/tcp/name_resolver.h"

#include <utility>

#include "base/thread_name.h"

namespace tandem {

NameResolver::~NameResolver() {
  questions_.Close();
  if (thread_.joinable()) thread_.join();
}

bool NameResolver::Resolve(HostPort peer, Done done) {
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  return questions_.TryPush({.peer = std::move(peer), .done = std::move(done)});
}

void NameResolver::Run() {
  NameThisThread("kv-names");
  while (!questions_.closed()) {
    for (const Question& question : questions_.WaitAndDrain(kNoDeadline)) {
      if (questions_.closed()) return;
      question.done(tandem::Resolve(question.peer, NameLookup::kByName));
    }
  }
}

}  // namespace tandem
