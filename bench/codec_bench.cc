// How much smaller the codecs make the KV of real text, what they change of it, and how fast they are on one core:
//   codec_bench [--model DIR] [--texts FILE,FILE,...] [--tokens N] [--rounds R] [--json FILE]
// Every text is cut to N tokens and prefilled. The tables of the codecs are made from the first half of the texts and
// used for the second half, whole blocks of which are encoded, decoded and compared. Ratios are of all layers, K and V,
// with the headers of the frames. Rates are of raw bytes by the processor's time, medians over the rounds, in each of
// which every codec and memcpy run once, and those codecs that have vector code run again with less of the processor's
// instructions: AVX2 where it has AVX-512, and the baseline, which has no vectors. byte-plane, the codec of the earlier
// systems, is so slow that it takes one extent in seven alone: once with all of its predictors, and once with the three
// that the earlier runtime had. How many times faster mask-rice encodes is of the same rounds. Errors are those of
// codecs that change KV: the root of the mean square of what comes back less what was there, over that of what was
// there, of K and of V.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/machine_name.h"
#include "base/status.h"
#include "bench/codec_corpus.h"
#include "bench/flags.h"
#include "bench/measured_codec.h"
#include "bench/result.h"
#include "fmt/format.h"
#include "hwy/targets.h"
#include "kvstore/codec/byte_plane.h"
#include "kvstore/codec/kv_codec.h"
#include "kvstore/codec/rounded.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

using Json = nlohmann::json;

struct Flags {
  std::string model = "models/sample";
  std::string texts =
      "docs/failures.md,bench/report.py,docs/architecture.md,kvstore/kv_store.cc,docs/"
      "cost_model.md,README.md";
  int32_t tokens = 1024;
  int32_t rounds = 7;
  std::string json;
};

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    words.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

double MemcpyRate(const Corpus& corpus, std::span<const Prompt> prompts) {
  std::vector<std::byte> to(corpus.shape.Bytes());
  size_t bytes = 0;
  const double began = CpuSeconds();
  for (const Prompt& prompt : prompts) {
    corpus.ForEach(prompt, [&](int32_t, std::span<const std::byte> extent) {
      std::memcpy(to.data(), extent.data(), extent.size());
      // Otherwise the copy would be left out.
      asm volatile("" : : "r"(to.data()) : "memory");
      bytes += extent.size();
    });
  }
  return static_cast<double>(bytes) / 1e9 / (CpuSeconds() - began);
}

// Prime to the usual numbers of blocks, so that all layers and all parts of a text take part.
constexpr size_t kSlowTakesOneIn = 7;

std::vector<Contender> Contenders(const ExtentShape& shape,
                                  const std::shared_ptr<const CodecTables>& tables) {
  std::vector<Contender> all;
  all.push_back({.name = std::string(CodecName(CodecId::kRaw)), .codec = nullptr});
  for (const CodecId id : {CodecId::kF3, CodecId::kMaskRice}) {
    all.push_back({.name = std::string(CodecName(id)), .codec = NewKvCodec(id, tables)});
  }
  const std::string slow(CodecName(CodecId::kBytePlane));
  all.push_back({slow, NewBytePlaneCodec(), kSlowTakesOneIn});
  for (const float step : {0.027f, 0.09f, 0.385f, 0.6f}) {
    auto codec = NewRoundedCodec(tables, step);
    if (codec->Fits(shape, 0)) all.push_back({.name = codec->name(), .codec = std::move(codec)});
  }
  all.push_back({slow + " runtime", NewBytePlaneCodec(PlanePredictors::kRuntime), kSlowTakesOneIn});
  return all;
}

// The targets of Highway for which codecs are compiled and that have fewer instructions than the best of
// this processor.
std::vector<int64_t> LesserTargets() {
  std::vector<int64_t> targets = {HWY_SCALAR};  // the baseline
  if ((hwy::SupportedTargets() & HWY_AVX3) != 0) targets.push_back(HWY_AVX2);
  return targets;
}

bool HasVectorCode(const MeasuredCodec& codec) {
  return codec.name() != CodecName(CodecId::kRaw) &&
         !codec.name().starts_with(CodecName(CodecId::kBytePlane));
}

// How many times faster mask-rice encodes than byte-plane, which is also printed.
Json TimesFaster(std::span<const std::unique_ptr<MeasuredCodec>> all) {
  const auto rice = std::ranges::find(all, CodecName(CodecId::kMaskRice),
                                      [](const auto& one) { return one->name(); });
  Json times = Json::object();
  for (const auto& one : all) {
    if (!one->name().starts_with(CodecName(CodecId::kBytePlane))) continue;
    const double factor = (*rice)->EncodeRate() / one->EncodeRate();
    std::printf("mask-rice encodes %.0f times as fast as %s\n", factor, one->name().c_str());
    times[one->name()] = factor;
  }
  return times;
}

absl::Status Run(const Flags& flags, const std::string& command) {
  ASSIGN_OR_RETURN(const Corpus corpus,
                   PrefillTexts(flags.model, Split(flags.texts), flags.tokens));
  const size_t half = corpus.prompts.size() / 2;
  CodecCalibrator calibrator(corpus.shape, corpus.num_layers);
  for (const Prompt& prompt : std::span(corpus.prompts).first(half)) {
    corpus.ForEach(prompt, [&](int32_t layer, auto extent) { calibrator.Add(layer, extent); });
  }
  const auto tables = std::make_shared<const CodecTables>(calibrator.Build());
  const auto others = std::span(corpus.prompts).subspan(half);
  std::vector<std::unique_ptr<MeasuredCodec>> all;
  for (Contender& contender : Contenders(corpus.shape, tables)) {
    all.push_back(std::make_unique<MeasuredCodec>(corpus, others, std::move(contender)));
  }
  const std::vector<int64_t> lesser = LesserTargets();
  std::vector<double> copies;
  for (int32_t round = 0; round < flags.rounds; ++round) {
    copies.push_back(MemcpyRate(corpus, others));
    for (const auto& one : all) RETURN_IF_ERROR(one->RunOnce(0));
    for (const auto& one : all) {
      if (!HasVectorCode(*one)) continue;
      for (const int64_t target : lesser) RETURN_IF_ERROR(one->RunOnce(target));
    }
  }
  Json codecs = Json::array();
  std::printf("memcpy %.1f GB/s\n%-18s %7s %7s %12s %12s %8s %8s\n", Median(copies), "codec",
              "ratio", "worst", "encode GB/s", "decode GB/s", "K error", "V error");
  for (const auto& one : all) {
    Json row = one->ToJson();
    std::string error_columns;
    if (!one->lossless()) {
      ASSIGN_OR_RETURN(const auto errors, one->Errors());
      std::tie(row["relative_error_k"], row["relative_error_v"]) = errors;
      error_columns = fmt::format(" {:8.5f} {:8.5f}", errors.first, errors.second);
    }
    std::printf("%-18s %7.3f %7.3f %12.3f %12.3f%s\n", row["codec"].get<std::string>().c_str(),
                row["ratio"].get<double>(), row["worst_prompt"].get<double>(),
                row["encode_gb_per_s"].get<double>(), row["decode_gb_per_s"].get<double>(),
                error_columns.c_str());
    codecs.push_back(std::move(row));
  }
  return WriteJson({{"command", command},
                    {"date", Today()},
                    {"machine", MachineName()},
                    {"model", flags.model},
                    {"texts", Split(flags.texts)},
                    {"tokens", flags.tokens},
                    {"rounds", flags.rounds},
                    {"dtype", Name(corpus.shape.dtype)},
                    {"block_tokens", corpus.shape.tokens},
                    {"memcpy_gb_per_s", Median(copies)},
                    {"mask_rice_encodes_times_as_fast_as", TimesFaster(all)},
                    {"codecs", std::move(codecs)}},
                   flags.json);
}

absl::Status Main(int argc, char** argv) {
  Flags flags;
  FlagParser parser;
  parser.Text("--model", flags.model);
  parser.Text("--texts", flags.texts);
  parser.Count("--tokens", flags.tokens, 16);
  parser.Count("--rounds", flags.rounds);
  parser.Text("--json", flags.json);
  RETURN_IF_ERROR(parser.Parse(argc, argv));
  return Run(flags, CommandLine(argc, argv));
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::ExitCode("codec_bench", tandem::Main(argc, argv));
}
