// Saved chats of foreign bytes, and what somebody types at a prompt.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/terminal/conversation.h"
#include "server/terminal/user_input.h"

// What is accepted comes back as it was written, and turns can be taken back until none is left.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem::terminal;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ParseInput(text).IgnoreError();
  auto chat = Conversation::Parse(text);
  if (!chat.ok()) return 0;
  const std::string written = chat->ToText();
  const auto again = Conversation::Parse(written);
  TANDEM_CHECK(again.ok() && again->ToText() == written, "what was written reads otherwise");
  while (chat->num_turns() > 0) {
    const size_t turns = chat->num_turns();
    chat->TakeBack();
    TANDEM_CHECK(chat->num_turns() < turns, "a turn that cannot be taken back");
  }
  return 0;
}
