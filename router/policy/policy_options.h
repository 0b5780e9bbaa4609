#pragma once

namespace tandem {

// What may be set of routing policies. Each field names the policy that reads it.
struct PolicyOptions {
  // auto: the relative error that predictions are taken to have at least. It leaves the least loaded
  // placement only for a gain that is larger than the error of what the two differ in.
  double least_error = 0.05;
};

}  // namespace tandem
