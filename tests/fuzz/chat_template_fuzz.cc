// Chat templates of foreign bytes, with messages of foreign bytes behind them: the first zero byte
// ends the template.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "model/chat/chat_template.h"

// Whatever they say, a prompt is well-formed text whose parts alternate.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(bytes.find('\0'), size);
  const auto chat = tandem::ParseChatTemplate(
      {{{"default", std::string(bytes.substr(0, end))}}, {{"bos_token", "<s>"}}});
  if (!chat.ok()) return 0;
  tandem::ChatInput input;
  const std::string_view messages = bytes.substr(std::min(end + 1, size));
  input.messages = nlohmann::ordered_json::parse(messages, nullptr, /*allow_exceptions=*/false);
  if (input.messages.is_discarded()) {
    input.messages = nlohmann::ordered_json::parse(
        R"([{"role": "system", "content": "S"}, {"role": "user", "content": "a b"}])");
  }
  input.variables = {{"x", {1, 2.5, "three", nullptr, true, {{"k", {"v"}}}}}};
  const auto parts = (*chat)->Render(input);
  if (!parts.ok()) return 0;
  for (size_t i = 0; i < parts->size(); ++i) {
    const tandem::TextPart& part = (*parts)[i];
    TANDEM_CHECK(!part.text.empty(), "an empty part");
    TANDEM_CHECK(tandem::ValidUtf8Prefix(part.text) == part.text.size(), "half a character");
    TANDEM_CHECK(i == 0 || part.from_input != (*parts)[i - 1].from_input, "two parts of a kind");
  }
  return 0;
}
