#include "engine/loop/canary_steps.h"

#include <memory>

#include "base/log.h"
#include "base/status.h"

namespace tandem {

void CanarySteps::OnIdle(TimePoint now) {
  if (interval_ <= Duration::zero()) return;
  if (now < next_ || now - progress_.computed_at() < interval_) return;
  next_ = now + interval_;  // also after a failure
  const absl::Status status = RunStep();
  if (status.ok()) return progress_.CountComputed();
  LogError("an idle engine's step failed: {}", status.ToString());
  failed_(status);
}

absl::Status CanarySteps::RunStep() {
  constexpr StepShape kOneToken = {.prefill_tokens = 1};
  const auto steps = DummySteps::Create({.max_step_tokens = kOneToken.prefill_tokens}, parts_);
  if (absl::IsResourceExhausted(steps.status())) return absl::OkStatus();
  RETURN_IF_ERROR(steps.status());
  return (*steps)->Run(kOneToken).status();
}

}  // namespace tandem
