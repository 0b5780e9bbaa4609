#include <memory>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "base/utf8.h"
#include "fmt/ranges.h"
#include "model/tokenizer/tokenizer.h"
#include "server/commands/client.h"
#include "server/commands/commands.h"
#include "server/commands/tls_flags.h"

namespace tandem {
namespace {

constexpr std::chrono::seconds kTokenizeTimeout(30);

struct TokenizeFlags {
  std::string text;
  std::string model_dir;
  std::string server;
  TlsFiles tls;
  bool omit_template = false;
};

absl::StatusOr<std::vector<int32_t>> Tokenize(const TokenizeFlags& flags) {
  const size_t valid = ValidUtf8Prefix(flags.text);
  if (valid < flags.text.size()) {
    return InvalidArgument("the text is not UTF-8: byte {} begins no character", valid);
  }
  if (!flags.model_dir.empty()) {
    ASSIGN_OR_RETURN(const auto tokenizer, LoadTokenizer(flags.model_dir));
    return tokenizer->Encode(
        flags.text, {.add_template = flags.omit_template ? Template::kOmit : Template::kAdd});
  }
  v1::TokenizeRequest request;
  request.set_text(flags.text);
  request.set_omit_template(flags.omit_template);
  ASSIGN_OR_RETURN(const v1::TokenizeResponse response,
                   Client(flags.server, flags.tls).Tokenize(request, kTokenizeTimeout));
  return std::vector<int32_t>(response.token_ids().begin(), response.token_ids().end());
}

}  // namespace

void AddTokenizeCommand(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<TokenizeFlags>();
  flags->server = kDefaultServer;
  CLI::App* tokenize = app.add_subcommand("tokenize", "Print the token ids of a text");
  tokenize->add_option("text", flags->text)->required();
  auto* model = tokenize->add_option("--model", flags->model_dir, "use this folder's tokenizer");
  tokenize->add_option("--server", flags->server, "ask the router at host:port")
      ->capture_default_str()
      ->excludes(model);
  tokenize->add_flag("--omit-template", flags->omit_template,
                     "without the tokenizer's own first and last tokens");
  AddClientTlsFlags(*tokenize, flags->tls);
  tokenize->footer(
      "The ids are comma-separated, as `tandem generate --token-ids` takes them.\n"
      "Example:\n"
      "  tandem tokenize \"It was a fine morning\" --model models/sample");
  tokenize->callback([flags, &chosen] {
    chosen = [flags] {
      const auto ids = Tokenize(*flags);
      if (!ids.ok()) return PrintError(ids.status());
      fmt::print("{}\n", fmt::join(*ids, ","));
      return kExitOk;
    };
  });
}

}  // namespace tandem
