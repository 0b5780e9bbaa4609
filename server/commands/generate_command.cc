#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "server/commands/client.h"
#include "server/commands/commands.h"
#include "server/commands/generation.h"
#include "server/commands/kv_flags.h"
#include "server/commands/number_flag.h"
#include "server/commands/route_flag.h"
#include "server/commands/sampling_flags.h"
#include "server/commands/tls_flags.h"

namespace tandem {
namespace {

// The flags of `tandem generate`. An optional that was not given takes the server's default.
struct GenerateFlags {
  std::string prompt;
  std::vector<int32_t> token_ids;
  std::string server = kDefaultServer;
  TlsFiles tls;
  std::string model;
  std::string route = "auto";
  SamplingFlags sampling;
  EndFlags ending;
  std::optional<int32_t> logprobs;
  std::optional<int32_t> prompt_logprobs;
  std::optional<int32_t> truncate_prompt;
  std::optional<int32_t> n;
  std::optional<int32_t> best_of;
  std::optional<int32_t> beam_width;
  std::optional<float> length_penalty;
  std::string early_stopping = "heuristic";
  bool keep_special_tokens = false;
  int32_t priority = 0;
  std::string tenant;
  std::string cache_salt;
  std::string quality;
  std::string evict;
  std::string session;
  std::string request_id;
  std::optional<double> ttft_slo_ms;
  std::optional<double> tpot_slo_ms;
  double timeout_seconds = 0;
  bool json = false;
  bool verbose = false;
};

const std::map<std::string, v1::BeamSearch::EarlyStopping> kEarlyStopping = {
    {"heuristic", v1::BeamSearch::EARLY_STOPPING_HEURISTIC},
    {"first", v1::BeamSearch::EARLY_STOPPING_FIRST},
    {"never", v1::BeamSearch::EARLY_STOPPING_NEVER}};

absl::Status FillSampling(const SamplingFlags& flags, v1::SamplingParams& sampling) {
  if (flags.temperature) sampling.set_temperature(*flags.temperature);
  if (flags.top_k) sampling.set_top_k(*flags.top_k);
  if (flags.top_p) sampling.set_top_p(*flags.top_p);
  if (flags.min_p) sampling.set_min_p(*flags.min_p);
  if (flags.repetition_penalty) sampling.set_repetition_penalty(*flags.repetition_penalty);
  if (flags.presence_penalty) sampling.set_presence_penalty(*flags.presence_penalty);
  if (flags.frequency_penalty) sampling.set_frequency_penalty(*flags.frequency_penalty);
  if (flags.seed) sampling.set_seed(*flags.seed);
  sampling.mutable_allowed_token_ids()->Add(flags.allowed_token_ids.begin(),
                                            flags.allowed_token_ids.end());
  ASSIGN_OR_RETURN(const auto biases, ParseBiases(flags.logit_bias));
  sampling.mutable_logit_bias()->insert(biases.begin(), biases.end());
  return absl::OkStatus();
}

// Sets the fields of the request that concern texts and the prompt.
absl::Status FillTexts(const GenerateFlags& flags, v1::GenerateRequest& request) {
  for (const std::string& stop : flags.ending.stop) {
    RETURN_IF_ERROR(CheckUtf8("--stop", stop));
    request.add_stop(stop);
  }
  for (const std::string& word : flags.sampling.bad_words) {
    RETURN_IF_ERROR(CheckUtf8("--bad-word", word));
    request.add_bad_words(word);
  }
  request.set_include_stop(flags.ending.include_stop);
  if (flags.keep_special_tokens) request.set_skip_special_tokens(false);
  if (flags.prompt_logprobs) request.set_prompt_logprobs(*flags.prompt_logprobs);
  if (flags.truncate_prompt) request.set_truncate_prompt_tokens(*flags.truncate_prompt);
  return absl::OkStatus();
}

void FillChoices(const GenerateFlags& flags, v1::GenerateRequest& request) {
  if (flags.n) request.set_n(*flags.n);
  if (flags.best_of) request.set_best_of(*flags.best_of);
  if (!flags.beam_width) return;
  v1::BeamSearch& beams = *request.mutable_beam_search();
  beams.set_beam_width(*flags.beam_width);
  if (flags.length_penalty) beams.set_length_penalty(*flags.length_penalty);
  beams.set_early_stopping(kEarlyStopping.at(flags.early_stopping));
}

// Only what protobuf cannot carry is refused here; the router judges the rest.
absl::StatusOr<v1::GenerateRequest> MakeRequest(const GenerateFlags& flags) {
  v1::GenerateRequest request;
  if (flags.token_ids.empty()) {
    RETURN_IF_ERROR(CheckUtf8("the prompt", flags.prompt));
    request.set_text(flags.prompt);
  } else if (!flags.prompt.empty()) {
    return InvalidArgument("give a prompt or --token-ids, not both");
  } else {
    request.mutable_token_ids()->mutable_ids()->Add(flags.token_ids.begin(), flags.token_ids.end());
  }
  RETURN_IF_ERROR(CheckUtf8("--model", flags.model));
  RETURN_IF_ERROR(CheckUtf8("--request-id", flags.request_id));
  RETURN_IF_ERROR(CheckUtf8("--tenant", flags.tenant));
  RETURN_IF_ERROR(CheckUtf8("--cache-salt", flags.cache_salt));
  RETURN_IF_ERROR(CheckUtf8("--session", flags.session));
  RETURN_IF_ERROR(FillTexts(flags, request));
  RETURN_IF_ERROR(FillSampling(flags.sampling, *request.mutable_sampling()));
  request.set_model(flags.model);
  request.set_request_id(flags.request_id);
  request.set_tenant(flags.tenant);
  request.set_cache_salt(flags.cache_salt);
  request.set_kv_quality(flags.quality);
  request.set_kv_eviction(flags.evict);
  request.set_session_id(flags.session);
  const EndFlags& ending = flags.ending;
  request.mutable_stop_token_ids()->Add(ending.stop_token_ids.begin(), ending.stop_token_ids.end());
  request.set_ignore_eos(ending.ignore_eos);
  if (ending.max_tokens) request.set_max_tokens(*ending.max_tokens);
  if (ending.min_tokens) request.mutable_sampling()->set_min_tokens(*ending.min_tokens);
  if (flags.logprobs) request.mutable_sampling()->set_logprobs(*flags.logprobs);
  request.set_priority(flags.priority);
  request.set_route(kRoutesByName.at(flags.route));
  if (flags.ttft_slo_ms) request.set_ttft_slo_ms(*flags.ttft_slo_ms);
  if (flags.tpot_slo_ms) request.set_tpot_slo_ms(*flags.tpot_slo_ms);
  FillChoices(flags, request);
  return request;
}

Client::Timeout TimeoutOf(double seconds) {
  if (seconds <= 0) return Client::kNoTimeout;
  return Client::Timeout(static_cast<int64_t>(std::ceil(seconds * 1e3)));
}

// Streams the first choice as it comes; further ones follow whole, each under its number.
void PrintChunk(const v1::Chunk& chunk) {
  if (chunk.index() != 0) return;
  std::fwrite(chunk.text().data(), 1, chunk.text().size(), stdout);
  std::fflush(stdout);
}

// Says on stderr that the tokens are simulated, also where the output is JSON, which has a field
// for it.
void PrintWhetherSimulated(const Generation& generation) {
  if (!generation.summary.simulated()) return;
  std::fflush(stdout);
  fmt::print(
      stderr,
      "simulated: no model computed this; the tokens are made up, at the pace of a parameter "
      "file\n");
}

void PrintRest(const Generation& generation, const GenerateFlags& flags) {
  if (flags.json) {
    fmt::print("{}\n", ToJson(generation));
  } else {
    fmt::print("\n");
    for (size_t i = 1; i < generation.choices.size(); ++i) {
      fmt::print("--- choice {}\n{}\n", i, generation.choices[i].text);
    }
  }
  if (!flags.verbose) return;
  std::fflush(stdout);
  for (const Generation::Choice& choice : generation.choices) {
    fmt::print(stderr, "{}", StageTable(choice.finish));
  }
  const v1::Usage& usage = generation.summary.usage();
  fmt::print(stderr,
             "  request {} seed {}, {} of {} prompt tokens cached, {} evicted, preempted {} times, "
             "resumed {} times\n",
             generation.summary.request_id(), generation.summary.seed(), usage.cached_tokens(),
             usage.prompt_tokens(), usage.evicted_tokens(), usage.preemptions(), usage.resumes());
}

int RunGenerate(const GenerateFlags& flags) {
  const auto request = MakeRequest(flags);
  if (!request.ok()) return PrintError(request.status());
  Generation generation;
  bool streamed = false;
  const auto on_event = [&](const v1::GenerateResponse& event) {
    generation.Add(event);
    if (!flags.json && event.has_chunk()) {
      PrintChunk(event.chunk());
      streamed = true;
    }
    return true;
  };
  const absl::Status status = Client(flags.server, flags.tls)
                                  .Generate(*request, TimeoutOf(flags.timeout_seconds), on_event);
  if (!status.ok()) {
    if (streamed) fmt::print("\n");
    std::fflush(stdout);
    return PrintError(status);
  }
  PrintRest(generation, flags);
  PrintWhetherSimulated(generation);
  return kExitOk;
}

void AddChoiceFlags(CLI::App& generate, GenerateFlags& flags) {
  const std::string group = "Choices";
  generate.add_option("--n", flags.n, "choices to generate; default 1")->group(group);
  generate
      .add_option("--best-of", flags.best_of, "sample so many, give the n most probable; default n")
      ->group(group);
  CLI::Option* beams =
      generate
          .add_option("--beam-width", flags.beam_width,
                      "search with so many beams instead of sampling; n of them are given")
          ->group(group);
  generate
      .add_option("--length-penalty", flags.length_penalty,
                  "beams are ranked by log-probability / length^this; default 1")
      ->needs(beams)
      ->group(group);
  generate
      .add_option("--early-stopping", flags.early_stopping,
                  "when a search that has enough ends: first (at once), heuristic, never")
      ->check(CLI::IsMember({"first", "heuristic", "never"}))
      ->needs(beams)
      ->capture_default_str()
      ->group(group);
}

}  // namespace

void AddGenerateCommand(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<GenerateFlags>();
  CLI::App* generate = app.add_subcommand("generate", "Continue a prompt, streaming the text");
  generate->add_option("prompt", flags->prompt, "the text to continue");
  generate->add_option("--token-ids", flags->token_ids, "the prompt as ids: 1,2,3")->delimiter(',');
  generate->add_option("--truncate-prompt", flags->truncate_prompt,
                       "use only the last so many tokens of the prompt");
  generate->add_option("--prompt-logprobs", flags->prompt_logprobs,
                       "report each prompt token's and of the n most probable (--json)");
  generate->add_flag("--keep-special-tokens", flags->keep_special_tokens,
                     "print special tokens, too");
  generate->add_option("--server", flags->server, "host:port of the router")->capture_default_str();
  generate->add_option("--route", flags->route, "auto, unified or disaggregated")
      ->check(CLI::IsMember({"auto", "unified", "disaggregated"}))
      ->capture_default_str();
  generate->add_option("--ttft-slo-ms", flags->ttft_slo_ms,
                       "route so that the first token comes within this time, if possible");
  generate->add_option("--tpot-slo-ms", flags->tpot_slo_ms, "the same for each further token");
  generate->add_option("--model", flags->model, "refuse if the server serves another");
  generate->add_option("--priority", flags->priority, "higher goes first")->capture_default_str();
  generate->add_option("--tenant", flags->tenant, "whose request: tenants get equal shares");
  generate->add_option("--cache-salt", flags->cache_salt,
                       "share cached prefixes only with requests of the same salt");
  generate
      ->add_option("--quality", flags->quality,
                   "what the KV of the prompt may lose on its way to a decode worker: exact "
                   "(nothing), near-strict, near, compact or tiny; the router's, unless given")
      ->check(KvQualityText());
  generate
      ->add_option(
          "--evict", flags->evict,
          "which KV of the prompt is given up once it is computed: none, or POLICY:RATIO as "
          "h2o-ema:2; the router's, unless given")
      ->check(TokenEvictionText());
  generate->add_option("--session", flags->session,
                       "id of the conversation, which stays on the workers that have it cached");
  generate->add_option("--request-id", flags->request_id,
                       "name of the request in the server's logs and for tandem explain");
  generate->add_flag("--json", flags->json, "print one JSON object at the end");
  generate->add_flag("-v,--verbose", flags->verbose, "print where the time went to stderr");
  AddChoiceFlags(*generate, *flags);
  AddSamplingFlags(*generate, flags->sampling);
  generate
      ->add_option("--logprobs", flags->logprobs,
                   "report each token's and of the n most probable (--json)")
      ->group(kSamplingGroup);
  AddEndFlags(*generate, flags->ending, "256");
  generate->add_option("--timeout", flags->timeout_seconds, "deadline in seconds; 0: none")
      ->check(NotNegative())
      ->group(kEndGroup);
  AddClientTlsFlags(*generate, flags->tls);
  generate->footer(
      "Errors are one line on stderr, \"error: CODE: message\", and exit status 1.\n"
      "Examples:\n"
      "  tandem generate \"It was a fine morning\" --server 127.0.0.1:8080 --max-tokens 40\n"
      "  tandem generate \"Dear Jane,\" --route disaggregated --temperature 0.8 --seed 7 -v\n"
      "  tandem generate --token-ids 1,2,3 --n 2 --json\n"
      "  tandem generate \"It was a fine morning\" --beam-width 4 --n 2 --max-tokens 20");
  generate->callback([flags, &chosen] { chosen = [flags] { return RunGenerate(*flags); }; });
}

}  // namespace tandem
