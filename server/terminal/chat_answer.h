#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "bench/serving/backend.h"
#include "bench/serving/openai_messages.h"
#include "nlohmann/json.hpp"

namespace tandem::terminal {

// A piece of an answer as it streams.
enum class PieceKind : uint8_t { kReasoning, kContent, kToolCall };
struct AnswerPiece {
  PieceKind kind;
  std::string text;
};

// What a Tandem router says of an answer with "return_timing".
struct AnswerTiming {
  std::string route;
  std::string prefill_worker;
  std::string decode_worker;  // the prefill worker or empty, where one worker did both
  double ttft_ms = 0;
  double itl_ms = 0;
};

// Puts the answer to a chat together from the data of its events. Not thread-safe.
class ChatAnswer {
 public:
  // The pieces that this event brings, to be printed in this order.
  std::vector<AnswerPiece> Add(std::string_view data);
  // To be called once, after the last event. `transport`: how the HTTP exchange ended. Returns an
  // error unless the answer is complete.
  absl::Status End(absl::Status transport);

  bool has_text() const { return !content_.empty() || !calls_.empty() || !reasoning_.empty(); }
  // The message of the assistant, as far as it came.
  nlohmann::ordered_json Message() const;
  // Usage and finish of the answer. Valid after End.
  const loadgen::CallEnd& end() const { return end_; }
  const std::optional<AnswerTiming>& timing() const { return timing_; }

 private:
  struct ToolCall {
    std::string id;
    std::string name;
    std::string arguments;
  };

  void AddDelta(const nlohmann::json& delta, std::vector<AnswerPiece>& pieces);
  void AddToolCall(const nlohmann::json& call, std::vector<AnswerPiece>& pieces);

  loadgen::OpenAiAnswer ending_;
  loadgen::CallEnd end_;
  std::string content_;
  std::string reasoning_;
  std::vector<ToolCall> calls_;
  std::optional<AnswerTiming> timing_;
};

}  // namespace tandem::terminal
