#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "bench/serving/backend.h"

namespace tandem::loadgen {

// A server whose every answer a test writes down. Calls are numbered by the order in which they
// were prepared.
class ScriptedBackend final : public Backend {
 public:
  // On the thread that starts or cancels the call; may answer there, or later on another thread.
  using Handler = std::function<void(size_t number, CallObserver& observer)>;

  explicit ScriptedBackend(Handler on_start, Handler on_cancel = nullptr)
      : on_start_(std::move(on_start)), on_cancel_(std::move(on_cancel)) {}

  std::string_view name() const override { return "scripted"; }
  absl::StatusOr<ServerInfo> Connect(Duration) override { return ServerInfo{.model = "script"}; }
  std::unique_ptr<Call> Prepare(const ScheduledRequest&, const std::string&,
                                CallObserver& observer) override {
    return std::make_unique<ScriptedCall>(*this, prepared_++, observer);
  }

  // An answer with `tokens` tokens, one per message, all now.
  static void AnswerWhole(CallObserver& observer, int32_t tokens) {
    for (int32_t i = 0; i < tokens; ++i) observer.OnTokens(Now(), 1);
    observer.OnEnd(Now(), {.whole = true, .finish_reason = "length", .output_tokens = tokens});
  }
  static TimePoint Now() { return std::chrono::steady_clock::now(); }

 private:
  class ScriptedCall final : public Call {
   public:
    ScriptedCall(ScriptedBackend& backend, size_t number, CallObserver& observer)
        : backend_(backend), number_(number), observer_(observer) {}
    void Start() override { backend_.on_start_(number_, observer_); }
    void Cancel() override {
      if (backend_.on_cancel_) backend_.on_cancel_(number_, observer_);
    }

   private:
    ScriptedBackend& backend_;
    const size_t number_;
    CallObserver& observer_;
  };

  const Handler on_start_;
  const Handler on_cancel_;
  size_t prepared_ = 0;
};

}  // namespace tandem::loadgen
