#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/answer/answer_markup.h"
#include "model/answer/string_parameters.h"

namespace tandem {

// A part of an answer. The parts of content, of reasoning and of the arguments of a call are to be
// joined in the order in which they come; the events of one call come without others in between.
struct AnswerEvent {
  enum class Kind : uint8_t {
    kContent,    // fields: text
    kReasoning,  // fields: text
    kCallBegin,  // fields: call, id, name
    kArguments,  // fields: call, text (more of the JSON text of its arguments)
    kCallEnd,    // fields: call
  };

  Kind kind = Kind::kContent;
  std::string text = {};
  int32_t call = 0;       // counts the calls of the answer from 0
  std::string id = {};    // such as "call_1a2b"
  std::string name = {};  // the name of the tool
  bool operator==(const AnswerEvent&) const = default;
};

struct ReaderOptions {
  // When the events of a call come. A stream wants them as soon as they are certain; a call that
  // turns out to be malformed after its arguments have begun then ends where it went wrong, and
  // what follows is content. A caller that keeps the answer until its end gets such a call as
  // content as a whole, the markup included.
  enum class Calls : uint8_t { kNone, kStreamed, kWhole };

  Calls calls = Calls::kNone;   // kNone: the request has no tools
  bool reasoning_open = false;  // AnswerMarkup::OpensReasoning of the prompt
  std::string id_seed = {};     // ids of calls are made of it: the request's id and the choice
  StringParameters string_parameters = {};
};

// Finds reasoning and calls of tools in what the model writes. The events of an answer do not
// depend on where its text was split. No text is lost: all of it but marks and the white space
// beside them is in an event, and what looked like a call but is none comes as content. Text that
// may become a mark waits for more text; at most kMaxHeldBytes wait, and longer calls count as
// malformed, except for their arguments where they are streamed.
//
// One reader for each choice. Not thread-safe.
class AnswerReader {
 public:
  static constexpr size_t kMaxHeldBytes = size_t{1} << 20;

  // `markup` may be null: then the whole answer is content.
  AnswerReader(std::shared_ptr<const AnswerMarkup> markup, ReaderOptions options);
  ~AnswerReader();
  AnswerReader(AnswerReader&&) noexcept;
  AnswerReader& operator=(AnswerReader&&) noexcept;

  // Reads more of the answer. Returns the events that became certain with this text.
  std::vector<AnswerEvent> Feed(std::string_view text);
  // Ends the answer and returns the remaining events. Nothing may be fed afterwards.
  std::vector<AnswerEvent> Finish();

  // Whether text that is fed next is reasoning, as far as is known.
  bool in_reasoning() const;
  // The number of calls that have begun.
  int32_t num_calls() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem
