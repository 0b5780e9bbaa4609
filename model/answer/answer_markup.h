#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/chat/chat_template.h"
#include "nlohmann/json.hpp"

namespace tandem {

// Marks are texts that the model writes around the parts of its answer. White space at the ends of
// a mark is not part of it, because models write it differently from time to time: a reader skips
// any white space between a mark and what it encloses, and white space inside of a mark stands for
// any amount, none included.

// The marks around reasoning, such as "<think>" and "</think>".
struct ReasoningMarkup {
  std::string open;
  std::string close;
  bool operator==(const ReasoningMarkup&) const = default;
};

// How calls of tools are written. In order, where empty marks are absent:
//   section_open (call_open CALL call_close) separator (call_open CALL call_close) section_close
// and CALL is, by `form`:
//   kJson     {"name": "NAME", "arguments": {...}}
//   kNamed    NAME name_close {...}
//   kTagged   NAME name_close (key_open KEY key_close VALUE value_close)*
struct CallMarkup {
  enum class Form : uint8_t { kJson, kNamed, kTagged };

  Form form = Form::kJson;
  std::string section_open;  // "[TOOL_CALLS] ["
  // "<tool_call>", "<function="; outside of a section it may be empty only with kJson, and then a
  // call must be the first thing of an answer.
  std::string call_open;
  std::string separator;   // ","; may be missing in what the model writes
  std::string call_close;  // "</tool_call>"
  std::string section_close;
  std::string name_close;   // ">"; empty: the name ends before white space, '{' or '<'
  std::string key_open;     // "<parameter="
  std::string key_close;    // ">"
  std::string value_close;  // "</parameter>"
  bool operator==(const CallMarkup&) const = default;
};

// What marks reasoning and calls in the answers of a model. Made once, when the model is loaded;
// readers share it.
struct AnswerMarkup {
  std::optional<ReasoningMarkup> reasoning;  // nothing: reasoning is part of the content
  std::optional<CallMarkup> calls;           // nothing: calls are part of the content
  // Ids of calls have nine letters and digits, because the model's template takes no others.
  bool short_call_ids = false;
  bool operator==(const AnswerMarkup&) const = default;

  // Whether a prompt that ends with this text has begun the reasoning already, as templates do that
  // end with "<think>\n".
  bool OpensReasoning(std::string_view end_of_prompt) const;
  // All marks, for finding out which of them are special tokens.
  std::vector<std::string> Marks() const;
};

// Which markup is searched for in answers: "auto", "none", or a parser that ToolParserNames() or
// ReasoningParserNames() lists.
struct ParserNames {
  std::string tools = "auto";
  std::string reasoning = "auto";
};
std::vector<std::string> ToolParserNames();       // auto, none, hermes, llama3_json, mistral, ...
std::vector<std::string> ReasoningParserNames();  // auto, none, think

// The markup of a model. "auto" takes its response_template (null where tokenizer_config.json has
// none) and else what MarkupOfTemplate finds. INVALID_ARGUMENT for a name that is unknown; other
// errors as MarkupOfResponseTemplate.
absl::StatusOr<AnswerMarkup> ChooseMarkup(const ChatTemplate* chat,
                                          const nlohmann::ordered_json& response_template,
                                          const ParserNames& names);

// Finds marks by rendering small conversations with and without calls and reasoning and comparing
// the prompts. What the template does not show is left out.
AnswerMarkup MarkupOfTemplate(const ChatTemplate& chat);

// Reads the declarative form of transformers (response_template in tokenizer_config.json).
// UNIMPLEMENTED names what no AnswerMarkup can express, INVALID_ARGUMENT what is malformed.
absl::StatusOr<AnswerMarkup> MarkupOfResponseTemplate(const nlohmann::ordered_json& json);

}  // namespace tandem
