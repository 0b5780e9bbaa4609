#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "bench/serving/schedule.h"

namespace tandem::loadgen {

// Where the server says that the time went, in milliseconds on its own clock. The stages from
// `earlier_attempts` to `residual` add up to `ttft`.
struct ServerStages {
  double ttft = 0;
  double earlier_attempts = 0;
  double queue = 0;
  double prefill = 0;
  double reserve = 0;
  double admission = 0;
  double transfer = 0;
  double first_token = 0;
  double residual = 0;
};

// What the server predicted for a request before it ran, in milliseconds.
struct PredictedLatency {
  std::optional<double> ttft;
  std::optional<double> tpot;
  std::optional<double> e2e;
};

// How a call ended.
struct CallEnd {
  absl::Status status;
  // The server said that the answer is whole. A stream that ends without this was cut off, whatever
  // its status is.
  bool whole = false;
  std::string finish_reason;  // "length", "stop"
  // As the server counts them; -1 where it does not say.
  int32_t prompt_tokens = -1;
  int32_t output_tokens = -1;
  int32_t cached_tokens = -1;
  // False where prompt and answer travel as text, whose tokens only the server can count.
  bool counts_are_exact = true;
  bool simulated = false;  // the server said that no model computed the answer
  std::string route;       // "unified", "disaggregated"; empty where the server has no routes
  std::optional<ServerStages> stages;
  std::optional<PredictedLatency> predicted;
};

// Receives what comes of one call, one event after another, on any thread.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // A message with so many tokens, at least one, arrived.
  virtual void OnTokens(TimePoint at, int32_t tokens) = 0;
  // Called exactly once, after all other events.
  virtual void OnEnd(TimePoint at, CallEnd end) = 0;
};

// One request to a server.
class Call {
 public:
  // Destroying the handle does not end a call that was started.
  virtual ~Call() = default;
  // Sends the request and returns at once. To be called once.
  virtual void Start() = 0;
  // To be called after Start. The observer's OnEnd still comes, with CANCELLED unless the call
  // ended before.
  virtual void Cancel() = 0;
};

struct ServerInfo {
  std::string model;
  int32_t max_context_tokens = 0;  // 0 where the server does not say
};

// What every request of a run asks for besides its prompt and length.
struct RequestOptions {
  bool ignore_eos = true;
  double temperature = 0;
  Duration timeout = std::chrono::minutes(10);
};

// A kind of server. Thread-safe once connected; must outlive its calls.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  // Finds out what the calls need. Waits up to `patience` for a server that is not there or not
  // ready, and returns UNAVAILABLE after that. To be called before anything else.
  virtual absl::StatusOr<ServerInfo> Connect(Duration patience) = 0;
  // Makes a call that only has to be started. `observer` must live until its end.
  virtual std::unique_ptr<Call> Prepare(const ScheduledRequest& request, const std::string& id,
                                        CallObserver& observer) = 0;
};

}  // namespace tandem::loadgen
