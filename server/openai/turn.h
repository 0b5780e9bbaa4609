#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "model/answer/answer_reader.h"
#include "server/openai/answer_reading.h"
#include "server/openai/answer_writer.h"
#include "server/openai/chat_request.h"
#include "server/openai/json_body.h"

namespace tandem::openai {

// A part of what an assistant says in one turn.
struct TurnPart {
  enum class Kind : uint8_t { kText, kReasoning, kCall };

  Kind kind = Kind::kText;
  std::string text = {};     // of a call: its arguments as JSON
  std::string call_id = {};  // empty unless it is a call
  std::string name = {};     // of a call: the tool
  bool is_complete = false;  // false: it goes on, or max_tokens has cut it off
};

// The answer to a request with one choice, as far as it has been generated.
struct Turn {
  std::vector<TurnPart> parts;
  std::optional<v1::ChoiceFinish> finish;
  v1::Usage usage;
  int64_t reasoning_tokens = 0;  // of those that were generated

  bool HasCalls() const;
  // Whether max_tokens has ended the turn.
  bool IsCutOff() const;
};

// How an API whose answers consist of several parts writes them. Each answer has an object of its
// own; not thread-safe. Functions that return a string return events of the stream.
class TurnFormat {
 public:
  virtual ~TurnFormat() = default;

  virtual const AnswerStyle& style() const = 0;
  virtual std::string Begin() = 0;
  // Parts come one after another: a part begins, grows and ends before the next one begins.
  virtual std::string BeginPart(const Turn& turn, size_t index) = 0;
  virtual std::string Grow(const Turn& turn, size_t index, std::string_view more) = 0;
  virtual std::string EndPart(const Turn& turn, size_t index) = 0;
  virtual std::string End(const Turn& turn) = 0;
  virtual std::string Error(const Turn& turn, const absl::Status& status) = 0;
  // The answer of a request that does not stream.
  virtual Json Whole(const Turn& turn) = 0;
};

enum class TurnDelivery : bool { kWhole, kStreamed };

// How the text of a turn is searched for reasoning and tool calls, and what of it the client wants.
struct TurnReading {
  std::shared_ptr<const ChoiceReading> reading;  // null: all of it is plain text
  bool include_reasoning = true;
  bool parallel_tool_calls = true;  // false: the first call only
};

// Builds the turn from the router's events, and has the format write it.
class TurnAnswer final : public AnswerWriter {
 public:
  TurnAnswer(std::unique_ptr<TurnFormat> format, TurnDelivery delivery,
             const TurnReading& reading = {});

  const AnswerStyle& style() const override { return format_->style(); }
  bool streams() const override { return delivery_ == TurnDelivery::kStreamed; }
  std::string Begin() override { return format_->Begin(); }
  std::string Add(size_t prompt, const v1::GenerateResponse& event) override;
  std::string Finish() override;
  std::string StreamError(const absl::Status& status) override;
  const std::optional<v1::ChoiceFinish>& first_finish() const override { return turn_.finish; }

 private:
  std::string AddChunk(const v1::Chunk& chunk);
  std::string AddFinish(const v1::ChoiceFinish& finish);
  std::string TakeAll(const std::vector<AnswerEvent>& events);
  std::string Take(const AnswerEvent& event);
  // Adds to the last part if it is of the same kind and still open; else begins a new part.
  std::string Say(TurnPart::Kind kind, std::string_view more);
  std::string BeginPart(TurnPart part);
  std::string Grow(std::string_view more);
  std::string EndPart();

  const std::unique_ptr<TurnFormat> format_;
  const TurnDelivery delivery_;
  const bool include_reasoning_;
  const bool parallel_tool_calls_;
  std::optional<AnswerReader> reader_;  // nothing: all of it is plain text
  Turn turn_;
  bool is_open_ = false;  // whether the last part is still growing
};

// UNIMPLEMENTED for what a turn has no place for: several choices, log-probabilities, token ids.
absl::Status CheckTurn(const ChatRequest& chat);

}  // namespace tandem::openai
