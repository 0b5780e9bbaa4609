#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "model/chat/chat_template.h"
#include "nlohmann/json.hpp"

// Small conversations that show how a chat template writes reasoning and calls of tools. They call
// a tool that is not declared, so that its name is found where it is called and nowhere else.
namespace tandem::probe {

// What the messages hold: the content of an answer, its reasoning, and the names of the tools that
// it calls, in order.
inline constexpr std::string_view kText = "probe-text";
inline constexpr std::string_view kThought = "probe-thought";
inline constexpr std::string_view kNames[] = {"probe_called", "probe_second"};
// The names of the parameters, in the order of the alphabet, because some templates sort them.
inline constexpr std::string_view kKeys[] = {"probe_key", "probe_other"};
// The values of the parameters: a text and a number, because some templates write them differently.
inline constexpr std::string_view kTextValue = "probe_value";
inline constexpr int kNumberValue = 90210;
inline constexpr std::string_view kValues[] = {kTextValue, "90210"};

// How a template may want calls: the ids, and whether the arguments are an object or its text.
struct CallStyle {
  enum class Id { kLong, kShort, kNamed };
  Id id = Id::kLong;
  bool string_arguments = false;
};

// The arguments of each call.
nlohmann::ordered_json Arguments();
// A message of the assistant without calls, and one that makes the first `num_calls` calls.
nlohmann::ordered_json Assistant(nlohmann::ordered_json content);
nlohmann::ordered_json WithCalls(int num_calls, const CallStyle& style);

// Whether the conversation declares a tool, and whether another question follows its answer.
enum class Tools { kGiven, kAbsent };
enum class Ends { kThere, kGoesOn };
// Renders a question, and the assistant's message or, where that is null, the beginning of its
// answer; for kGoesOn another question follows. Nothing where the template refuses it, or where the
// text is too long to be searched.
std::optional<std::string> Rendered(const ChatTemplate& chat,
                                    const nlohmann::ordered_json& assistant, Tools tools,
                                    Ends ends = Ends::kThere);

}  // namespace tandem::probe
