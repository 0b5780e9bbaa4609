#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// Whether an event is one of many to come, as fast as they are made, or part of an answer that is
// there as a whole: no reader can keep up with that, so only the sum of all answers is bounded.
enum class Pace : uint8_t { kLive, kWhole };

// Where a request's events go. It must take calls until End, which comes exactly once, last.
// Thread: the router's loop.
class ResponseStream {
 public:
  virtual ~ResponseStream() = default;
  // False when the reader is so slow that the stream's buffer is full or, for kWhole, when too much
  // of all answers is unread: the request must then end.
  [[nodiscard]] virtual bool Send(const v1::GenerateResponse& response, Pace pace) = 0;
  // OK: after all that was sent. An error drops what still waits.
  virtual void End(const absl::Status& status) = 0;
};

}  // namespace tandem
