#pragma once

#include <cstdint>

#include "base/clock.h"
#include "engine/inbox.h"
#include "engine/loop/core.h"
#include "engine/sequence.h"

namespace tandem {

// The hand-offs of a prefill engine, from the arrival of a request until the decode worker has
// acknowledged its KV. The KvSender does the sending; this class ends the requests.
// Thread: engine. `core` must outlive it.
class OutgoingHandoffs {
 public:
  explicit OutgoingHandoffs(EngineCore& core) : core_(core) {}

  // Opens the KV stream of a request that has a hand-off target, unless the stream was opened
  // before.
  void Open(SubmitMessage& message);
  // The prompt is computed and its first tokens are sampled: commits the stream, and the sequence
  // keeps its blocks until the peer has acknowledged them.
  void Commit(Sequence& root);
  void Ended(const StreamEndedMessage& message);
  // Reopens the lost streams whose pause is over.
  void ReopenLost(TimePoint now);

  // The number of hand-offs that the peer acknowledged.
  uint64_t num_sent() const { return num_sent_; }

 private:
  EngineCore& core_;
  uint64_t num_sent_ = 0;
};

}  // namespace tandem
