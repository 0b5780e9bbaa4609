#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "router/event_loop.h"
#include "router/router.h"
#include "server/http/http_exchange.h"
#include "server/openai/answer_writer.h"
#include "server/openai/piece.h"

namespace tandem::openai {

struct ChoiceReading;

// One prompt of a call, ready for the router.
struct CallPrompt {
  v1::GenerateRequest request;
  PromptInfo info;
  std::shared_ptr<const ChoiceReading> reading = nullptr;  // null: the text is not searched
};

// One HTTP request while the router works for it: submits the prompts, puts the events together and
// answers. When the client goes, the router's requests are cancelled; when one of them fails, so
// are the others, and the client gets the error. It is kept alive by the router's requests. Start
// is called once; the rest happens on the router's loop and on threads of the HTTP server.
class GenerateCall : public std::enable_shared_from_this<GenerateCall> {
 public:
  // The router, its loop and their clock outlive all calls.
  GenerateCall(Router& router, EventLoop& loop, const Clock& clock,
               std::shared_ptr<HttpExchange> exchange, std::string request_id,
               std::unique_ptr<AnswerWriter> answer);
  ~GenerateCall();

  // Submits the requests. Their prompts must have been added to the answer in the same order.
  void Start(std::vector<v1::GenerateRequest> requests);

 private:
  class PromptStream;

  bool OnEvent(size_t prompt, const v1::GenerateResponse& event, Pace pace);
  void OnEnd(const absl::Status& status);
  void OnGone();
  // Ends the call with this error, unless it has ended before.
  void Fail(const absl::Status& status);
  void CancelAll(const absl::Status& why);
  // Sends status and headers of a stream whose first token takes long, so that comments keep the
  // connection open meanwhile.
  void StartStreamLater();
  void StartStreamUnlessEnded();
  // Begins the stream unless it has begun. False when its beginning was not taken: it must then be
  // aborted.
  [[nodiscard]] bool StartStream() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Finish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Router& router_;
  EventLoop& loop_;
  const Clock& clock_;
  const std::shared_ptr<HttpExchange> exchange_;
  const std::string request_id_;
  std::vector<std::unique_ptr<PromptStream>> streams_;  // set by Start
  absl::Mutex mutex_;  // held in calls of the exchange and stream, never of the router
  const std::unique_ptr<AnswerWriter> answer_ ABSL_PT_GUARDED_BY(mutex_);
  std::shared_ptr<HttpStream> stream_ ABSL_GUARDED_BY(mutex_);  // null until it has begun
  std::vector<RequestId> in_router_ ABSL_GUARDED_BY(mutex_);    // those that were submitted
  size_t unended_ ABSL_GUARDED_BY(mutex_) = 0;                  // prompts that may still get events
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mutex_);   // how the call ended
};

}  // namespace tandem::openai
