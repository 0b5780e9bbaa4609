#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bench/serving/backend.h"
#include "bench/serving/record.h"
#include "bench/serving/schedule.h"

namespace tandem::loadgen {

struct RunOptions {
  int32_t max_concurrency = 0;  // requests under way at most; 0: any number
  // Each request is due as soon as a slot is free: the times of the schedule are not used.
  bool closed_loop = false;
  // Requests that still run so long after the last one was sent are cancelled and count as failed.
  Duration drain_timeout = std::chrono::minutes(10);
  std::string id_prefix = "bench";  // request ids are PREFIX-NUMBER
};

struct RunResult {
  std::vector<RequestRecord> records;  // as in the schedule
  Duration length{};                   // from the start to the end of the last request
  int32_t peak_concurrency = 0;
};

// Counts while a run goes on, for a progress display. Any thread may read them.
struct RunCounts {
  std::atomic<int64_t> sent = 0;
  std::atomic<int64_t> ended = 0;
  std::atomic<int64_t> failed = 0;  // with another status than OK and CANCELLED
  std::atomic<int64_t> tokens = 0;
};

// Sends what the schedule says at its times, never waiting for an answer except for a slot of
// `max_concurrency`, and returns when all requests have ended. Uses the calling thread to send.
// `schedule` is not empty.
RunResult Run(const Schedule& schedule, const RunOptions& options, Backend& backend,
              RunCounts& counts);

}  // namespace tandem::loadgen
