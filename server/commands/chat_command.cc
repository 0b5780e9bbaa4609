#include <signal.h>

#include <memory>
#include <optional>
#include <random>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "server/commands/commands.h"
#include "server/commands/http_flags.h"
#include "server/commands/sampling_flags.h"
#include "server/commands/tls_flags.h"
#include "server/terminal/chat_file.h"
#include "server/terminal/chat_session.h"

namespace tandem {
namespace {

struct ChatFlags {
  TlsFiles tls;
  std::string url = fmt::format("http://127.0.0.1:{}", kDefaultHttpPort);
  std::string model;
  std::string system;
  std::string load;
  std::string route = "auto";
  std::string session;
  bool trim = false;
  bool verbose = false;
  SamplingFlags sampling;
  EndFlags ending;
};

std::string NewId() {
  std::random_device device;
  return fmt::format("chat-{:08x}{:08x}", device(), device());
}

template <typename Value>
void Put(nlohmann::ordered_json& fields, const char* name, const std::optional<Value>& value) {
  if (value) fields[name] = *value;
}

template <typename Value>
void Put(nlohmann::ordered_json& fields, const char* name, const std::vector<Value>& values) {
  if (!values.empty()) fields[name] = values;
}

// The request fields of OpenAI's API that these flags stand for.
absl::StatusOr<nlohmann::ordered_json> FieldsOf(const SamplingFlags& sampling,
                                                const EndFlags& ending) {
  for (const std::string& word : sampling.bad_words) {
    RETURN_IF_ERROR(CheckUtf8("--bad-word", word));
  }
  for (const std::string& stop : ending.stop) RETURN_IF_ERROR(CheckUtf8("--stop", stop));
  auto fields = nlohmann::ordered_json::object();
  Put(fields, "temperature", sampling.temperature);
  Put(fields, "top_k", sampling.top_k);
  Put(fields, "top_p", sampling.top_p);
  Put(fields, "min_p", sampling.min_p);
  Put(fields, "repetition_penalty", sampling.repetition_penalty);
  Put(fields, "presence_penalty", sampling.presence_penalty);
  Put(fields, "frequency_penalty", sampling.frequency_penalty);
  Put(fields, "seed", sampling.seed);
  Put(fields, "allowed_token_ids", sampling.allowed_token_ids);
  Put(fields, "bad_words", sampling.bad_words);
  ASSIGN_OR_RETURN(const auto biases, ParseBiases(sampling.logit_bias));
  for (const auto& [id, bias] : biases) fields["logit_bias"][std::to_string(id)] = bias;
  Put(fields, "stop", ending.stop);
  Put(fields, "stop_token_ids", ending.stop_token_ids);
  Put(fields, "min_tokens", ending.min_tokens);
  if (ending.include_stop) fields["include_stop_str_in_output"] = true;
  if (ending.ignore_eos) fields["ignore_eos"] = true;
  return fields;
}

absl::StatusOr<terminal::ChatOptions> OptionsOf(const ChatFlags& flags) {
  terminal::ChatOptions options{.model = flags.model,
                                .route = flags.route,
                                .session_id = flags.session,
                                .request_prefix = NewId(),
                                .trim = flags.trim,
                                .max_tokens = flags.ending.max_tokens};
  if (options.session_id.empty()) options.session_id = options.request_prefix;
  ASSIGN_OR_RETURN(options.fields, FieldsOf(flags.sampling, flags.ending));
  if (!flags.load.empty()) {
    ASSIGN_OR_RETURN(options.chat, terminal::LoadChat(flags.load));
  }
  if (!flags.system.empty()) options.chat.set_system(flags.system);
  return options;
}

absl::StatusOr<int> Chat(const ChatFlags& flags) {
  RETURN_IF_ERROR(flags.tls.CheckClient());
  ASSIGN_OR_RETURN(terminal::ChatOptions options, OptionsOf(flags));
  signal(SIGPIPE, SIG_IGN);  // a server that goes is an error of the connection
  terminal::Wakeup wakeup;
  terminal::ChatConnection connection(flags.url, wakeup, flags.tls);
  terminal::Screen screen(
      terminal::AudienceOfThisProcess(),
      flags.verbose ? terminal::Screen::Notes::kAll : terminal::Screen::Notes::kPeopleOnly);
  std::optional<terminal::TerminalSignals> signals;
  if (screen.is_interactive()) signals.emplace(wakeup);
  const std::unique_ptr<terminal::LineReader> reader =
      signals ? terminal::NewTerminalReader(wakeup, *signals) : terminal::NewPipeReader();
  terminal::ChatSession session(std::move(options), {.connection = connection,
                                                     .screen = screen,
                                                     .reader = *reader,
                                                     .signals = signals ? &*signals : nullptr});
  RETURN_IF_ERROR(session.Run());
  // A question that failed sets the exit status for programs only: a person has seen the error.
  return session.any_failed() && !screen.is_interactive() ? kExitFailed : kExitOk;
}

int RunChat(const ChatFlags& flags) {
  const absl::StatusOr<int> status = Chat(flags);
  return status.ok() ? *status : PrintError(status.status());
}

}  // namespace

void AddChatCommand(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<ChatFlags>();
  CLI::App* chat = app.add_subcommand("chat", "Talk to the served model in this terminal");
  chat->add_option("--url", flags->url, "where the server speaks HTTP")->capture_default_str();
  AddClientTlsFlags(*chat, flags->tls);
  chat->add_option("--model", flags->model, "refuse if the server serves another");
  chat->add_option("--system", flags->system, "what the model is told before the chat");
  chat->add_option("--load", flags->load, "go on with a chat that /save wrote");
  chat->add_option("--route", flags->route, "auto, unified or disaggregated")
      ->check(CLI::IsMember({"auto", "unified", "disaggregated"}))
      ->capture_default_str();
  chat->add_option("--session", flags->session,
                   "id of the conversation, which stays on the workers that have it cached");
  chat->add_flag("--trim", flags->trim,
                 "forget the oldest questions where the next would not fit the context");
  chat->add_flag("-v,--verbose", flags->verbose,
                 "in a pipe: print the figures of each answer to stderr");
  AddSamplingFlags(*chat, flags->sampling);
  AddEndFlags(*chat, flags->ending, "what the context leaves");
  chat->footer(
      "In the chat: /help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves.\n"
      "Where stdin is no terminal each line is a question, and only the answers are printed; exit\n"
      "status 1 when one failed.\n"
      "Examples:\n"
      "  tandem chat --system \"Answer in one sentence.\" --temperature 0.2\n"
      "  echo \"What is the capital of France?\" | tandem chat --route disaggregated -v");
  chat->callback([flags, &chosen] { chosen = [flags] { return RunChat(*flags); }; });
}

}  // namespace tandem
