#pragma once

#include <functional>
#include <set>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "grpcpp/client_context.h"
#include "server/commands/generation.h"
#include "tandem/v1/inference.grpc.pb.h"

namespace tandem {

// A client's call on a thread of its own, so that somebody else can act on what it has come to.
// Thread-safe.
class GenerateCall {
 public:
  // `moved` is called on the call's thread after each event and after the end.
  GenerateCall(v1::Inference::Stub& stub, const v1::GenerateRequest& request, Duration timeout,
               std::function<void()> moved);
  // Waits for the end.
  ~GenerateCall();

  void Cancel() { context_.TryCancel(); }
  // Tokens of all choices so far.
  size_t tokens() const;
  bool ended() const;
  // Until there are `tokens`, or it has ended. Whether there are and it has not.
  bool AwaitTokens(size_t tokens) const;
  void AwaitEnd() const;

  // Once ended.
  const absl::Status& status() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return status_; }
  const Generation& generation() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return generation_; }
  // What it was told more than once, or after its end; empty when all came once and in order.
  const std::string& disorder() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return disorder_; }
  // Finishes, of all choices, and summaries.
  size_t finishes() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return finished_.size(); }
  bool has_summary() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return has_summary_; }

 private:
  void Run(v1::Inference::Stub& stub, const v1::GenerateRequest& request);
  void Note(const v1::GenerateResponse& event);
  // How `event` may not come now; empty when it may.
  std::string DisorderOf(const v1::GenerateResponse& event) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  grpc::ClientContext context_;
  const std::function<void()> moved_;
  mutable absl::Mutex mutex_;
  Generation generation_ ABSL_GUARDED_BY(mutex_);
  size_t tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<int32_t> finished_ ABSL_GUARDED_BY(mutex_);  // choices
  bool has_summary_ ABSL_GUARDED_BY(mutex_) = false;
  std::string disorder_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tandem
