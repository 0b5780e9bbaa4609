#include "router/request/stages.h"

namespace tandem {
namespace {

double MicrosToMs(int64_t us) { return static_cast<double>(us) / 1e3; }

}  // namespace

v1::Stages SplitTtft(const ChoiceTimes& times, const AttemptTimes& attempts,
                     const v1::StageTimes& worker) {
  // The clocks of router and worker run at the same rate, so the worker's times lie within the
  // router's, up to rounding.
  constexpr double kRoundingMs = 0.01;
  v1::Stages stages;
  stages.set_ttft_ms(ToMilliseconds(times.first_token - times.received));
  stages.set_queue_ms(MicrosToMs(worker.queue_us()));
  stages.set_prefill_ms(MicrosToMs(worker.prefill_us()));
  stages.set_earlier_attempts_ms(ToMilliseconds(attempts.earlier_attempts));
  stages.set_reserve_ms(ToMilliseconds(attempts.reserve));
  stages.set_admission_ms(ToMilliseconds(attempts.admission));
  stages.set_transfer_ms(MicrosToMs(worker.transfer_us()));
  stages.set_first_token_ms(MicrosToMs(worker.first_token_us()));
  const double named = stages.earlier_attempts_ms() + stages.queue_ms() + stages.prefill_ms() +
                       stages.reserve_ms() + stages.admission_ms() + stages.transfer_ms() +
                       stages.first_token_ms();
  const double residual = stages.ttft_ms() - named;
  stages.set_residual_ms(residual < 0 && residual > -kRoundingMs ? 0 : residual);
  return stages;
}

double TimePerOutputTokenMs(const ChoiceTimes& times, int32_t completion_tokens) {
  if (completion_tokens < 2) return 0;
  return ToMilliseconds(times.last_token - times.first_token) / (completion_tokens - 1);
}

}  // namespace tandem
