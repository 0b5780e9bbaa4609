#include "bench/serving/schedule.h"

#include <span>

#include "base/hash.h"
#include "fmt/format.h"

namespace tandem::loadgen {

int32_t ScheduledRequest::prompt_tokens() const {
  int32_t tokens = 0;
  for (const PromptSegment& segment : prompt) tokens += segment.tokens;
  return tokens;
}

uint64_t Schedule::Hash() const {
  constexpr uint64_t kNeverCancelled = ~uint64_t{0};
  std::vector<uint64_t> words;
  for (const ScheduledRequest& request : requests) {
    words.push_back(static_cast<uint64_t>(request.at.count()));
    words.push_back(static_cast<uint64_t>(request.output_tokens));
    words.push_back(request.cancel_after ? static_cast<uint64_t>(request.cancel_after->count())
                                         : kNeverCancelled);
    words.push_back(request.prompt.size());
    for (const PromptSegment& segment : request.prompt) {
      words.push_back(segment.seed);
      words.push_back(static_cast<uint64_t>(segment.tokens));
    }
  }
  return Hash64(std::as_bytes(std::span(words)));
}

std::string Schedule::HashText() const { return fmt::format("{:016x}", Hash()); }

Duration Schedule::Length() const {
  return requests.empty() ? Duration::zero() : requests.back().at;
}

}  // namespace tandem::loadgen
