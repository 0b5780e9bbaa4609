#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "bench/serving/sweep_plan.h"
#include "server/commands/child_process.h"

namespace tandem {

// A `tandem up` of its own for one point of a sweep, so that no point profits from the caches or
// the learned costs of another point. The process must adopt its orphans (PR_SET_CHILD_SUBREAPER).
class SweptService {
 public:
  // Returns when all workers are ready. FAILED_PRECONDITION says why the service could not start.
  static absl::StatusOr<std::unique_ptr<SweptService>> Start(
      const loadgen::SweepPlan& plan, const loadgen::SweepStrategy& strategy);
  // Ends the service and waits for its processes.
  ~SweptService();
  SweptService(const SweptService&) = delete;
  SweptService& operator=(const SweptService&) = delete;

  const std::string& address() const { return address_; }

 private:
  explicit SweptService(ChildProcess up) : up_(std::move(up)) {}
  absl::Status AwaitWorkers(int count) const;

  ChildProcess up_;
  std::string address_;
};

}  // namespace tandem
