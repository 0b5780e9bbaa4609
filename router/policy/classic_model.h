#pragma once

#include <cstdint>

namespace tandem {

// The six numbers of the closed formulas that nanoPD (github.com/HJCheng0602/nanoPD,
// cost_model/analytical.py) chooses a route by. Milliseconds and GB of 1e9 bytes.
struct ClassicCoefficients {
  double alpha_ms = 0;            // time per prompt token
  double beta_ms = 0;             // time of a decode step of up to batch_thresh sequences
  double gamma_ms = 0;            // time added to decodes per prompt token, at batch_thresh
  double batch_thresh = 1;        // sequences from which on a step takes longer; at least 1
  double bandwidth_gb_per_s = 0;  // of the link; above 0
  double bytes_per_token = 0;     // of KV
};

// The formulas as they were published. They are a baseline: docs/cost_model.md says what is wrong
// with them. All times are in milliseconds.
class ClassicModel {
 public:
  explicit ClassicModel(const ClassicCoefficients& coefficients) : c_(coefficients) {}

  double Prefill(double prompt_tokens) const { return c_.alpha_ms * prompt_tokens; }
  double Transfer(double prompt_tokens) const;
  double Step(double sequences) const;
  // The time that a prompt costs while `load` sequences decode beside it.
  double Interference(double prompt_tokens, double load) const;

  // The time of a whole request on one worker, with `load` sequences in the system.
  double Unified(double prompt_tokens, double output_tokens, double load) const;
  // The time of a whole request on a prefill worker and a decode worker that then decodes
  // `sequences`.
  double Disaggregated(double prompt_tokens, double output_tokens, double sequences) const;

  // The load at which both routes take equally long, below batch_thresh: beyond it disaggregation
  // wins.
  double BreakEvenLoad() const;

 private:
  const ClassicCoefficients c_;
};

}  // namespace tandem
