// How much smaller the codecs make the KV of real text, what they change of it, and how fast they are on one core:
//   codec_bench [--model DIR] [--texts FILE,FILE,...] [--tokens N] [--rounds R] [--json FILE]
// Every text is cut to N tokens and prefilled. The tables of the codecs are made from the first half of the texts and
// used for the second half, whole blocks of which are encoded, decoded and compared. Ratios are of all layers, K and V,
// with the headers of the frames. Rates are of raw bytes by the processor's time, medians over the rounds, in each of
// which every codec and memcpy run once. byte-plane, the codec of the earlier systems, is so slow that it takes one
// extent in seven alone: once with all of its predictors, and once with the three that the earlier runtime had. How
// many times faster mask-rice encodes is of the same rounds.
// which every codec and memcpy run once. Errors are those of codecs that change KV: the root of the mean square of what
// comes back less what was there, over that of what was there, of K and of V.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/machine_name.h"
#include "base/status.h"
#include "bench/flags.h"
#include "bench/model_session.h"
#include "bench/result.h"
#include "fmt/format.h"
#include "kvstore/codec/byte_plane.h"
#include "kvstore/codec/kv_codec.h"
#include "kvstore/codec/quantised.h"
#include "model/tokenizer/tokenizer.h"
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

// The KV of one text: its extents one after another.
struct Prompt {
  std::string name;
  int32_t num_blocks = 0;
  std::vector<std::byte> bytes;  // [layer][block]
};

struct Corpus {
  ExtentShape shape;
  int32_t num_layers = 0;
  std::vector<Prompt> prompts;

  std::span<const std::byte> Extent(const Prompt& prompt, int32_t layer, int32_t block) const {
    const auto index = static_cast<size_t>(layer) * static_cast<size_t>(prompt.num_blocks) +
                       static_cast<size_t>(block);
    return std::span(prompt.bytes).subspan(index * shape.Bytes(), shape.Bytes());
  }
  // Calls `function(layer, extent)`.
  template <typename Function>
  void ForEach(const Prompt& prompt, Function function) const {
    for (int32_t layer = 0; layer < num_layers; ++layer) {
      for (int32_t block = 0; block < prompt.num_blocks; ++block) {
        function(layer, Extent(prompt, layer, block));
      }
    }
  }
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

absl::StatusOr<std::vector<int32_t>> TokensOf(const Tokenizer& tokenizer, const std::string& path,
                                              int32_t most) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer.Encode(text, {}));
  ids.resize(std::min(ids.size(), static_cast<size_t>(most)));
  return ids;
}

absl::StatusOr<Corpus> Prefilled(const Flags& flags) {
  ASSIGN_OR_RETURN(const auto tokenizer, LoadTokenizer(flags.model));
  ASSIGN_OR_RETURN(const auto session, ModelSession::Open({.directory = flags.model,
                                                           .max_context_tokens = flags.tokens}));
  const KvPoolView& pool = session->pool();
  Corpus corpus = {.shape = {pool.dtype, pool.num_kv_heads, pool.head_dim, pool.block_tokens},
                   .num_layers = pool.num_layers,
                   .prompts = {}};
  for (const std::string& path : Split(flags.texts)) {
    ASSIGN_OR_RETURN(const std::vector<int32_t> ids, TokensOf(*tokenizer, path, flags.tokens));
    Prompt prompt = {.name = path, .bytes = {}};
    prompt.num_blocks = static_cast<int32_t>(ids.size()) / pool.block_tokens;
    if (prompt.num_blocks == 0) return InvalidArgument("{}: too little text for a block", path);
    RETURN_IF_ERROR(session->Prefill(ids).status());
    for (int32_t layer = 0; layer < corpus.num_layers; ++layer) {
      for (int32_t block = 0; block < prompt.num_blocks; ++block) {
        const auto extent = session->Extent(layer, block);
        prompt.bytes.insert(prompt.bytes.end(), extent.begin(), extent.end());
      }
    }
    corpus.prompts.push_back(std::move(prompt));
  }
  if (corpus.prompts.size() < 2) return InvalidArgument("--texts: give at least two files");
  return corpus;
}

double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// All frames of some prompts, one after another.
struct Frames {
  std::vector<std::byte> bytes;
  std::vector<size_t> sizes;
};

// A codec under the name that its row has, and which extents it takes: each of `every`.
struct Contender {
  std::string name;
  std::unique_ptr<KvCodec> codec;  // null: raw
  size_t every = 1;
};

// The bits of an f16 as a number.
float FloatOfF16(uint16_t word) {
  const auto magnitude = static_cast<uint32_t>(word & 0x7fff) << 13;
  const float value = std::bit_cast<float>(magnitude) * 0x1p112f;
  return (word & 0x8000) != 0 ? -value : value;
}

std::vector<float> FloatsOf(DType dtype, std::span<const std::byte> raw) {
  std::vector<float> floats(raw.size() / static_cast<size_t>(SizeOf(dtype)));
  if (dtype == DType::kF32) {
    std::memcpy(floats.data(), raw.data(), raw.size());
    return floats;
  }
  for (size_t i = 0; i < floats.size(); ++i) {
    uint16_t word = 0;
    std::memcpy(&word, raw.data() + i * sizeof(word), sizeof(word));
    floats[i] =
        dtype == DType::kF16 ? FloatOfF16(word) : std::bit_cast<float>(uint32_t{word} << 16);
  }
  return floats;
}

// Sums over all values of one side.
struct ErrorSums {
  double error = 0;
  double value = 0;

  void Add(std::span<const float> before, std::span<const float> after) {
    for (size_t i = 0; i < before.size(); ++i) {
      const double difference = double{after[i]} - double{before[i]};
      error += difference * difference;
      value += double{before[i]} * double{before[i]};
    }
  }
  double Relative() const { return value == 0 ? 0 : std::sqrt(error / value); }
};

// One codec over the prompts that the tables were not made of.
class Measured {
 public:
  Measured(const Corpus& corpus, std::span<const Prompt> prompts, Contender contender)
      : corpus_(corpus), prompts_(prompts), contender_(std::move(contender)) {
    for (const Prompt& prompt : prompts_) {
      size_t bytes = 0;
      ForEachTaken(prompt, [&](int32_t, auto extent) { bytes += extent.size(); });
      prompt_bytes_.push_back(bytes);
      raw_bytes_ += bytes;
    }
    frames_.bytes.resize(raw_bytes_ + raw_bytes_ / corpus.shape.Bytes() * kCodecHeaderBytes);
    back_.resize(corpus.shape.Bytes());
  }

  absl::Status RunOnce() {
    double began = CpuSeconds();
    RETURN_IF_ERROR(Encode());
    encode_.push_back(GigabytesPerSecond(began));
    began = CpuSeconds();
    RETURN_IF_ERROR(Decode([](std::span<const std::byte>) {}));
    decode_.push_back(GigabytesPerSecond(began));
    return absl::OkStatus();
  }

  bool lossless() const { return contender_.codec == nullptr || contender_.codec->lossless(); }
  // The errors of K and of V.
  absl::StatusOr<std::pair<double, double>> Errors() {
    RETURN_IF_ERROR(Encode());
    ErrorSums k;
    ErrorSums v;
    RETURN_IF_ERROR(Decode([&](std::span<const std::byte> extent) {
      const DType dtype = corpus_.shape.dtype;
      const std::vector<float> before = FloatsOf(dtype, extent);
      const std::vector<float> after = FloatsOf(dtype, back_);
      const size_t half = before.size() / 2;
      k.Add(std::span(before).first(half), std::span(after).first(half));
      v.Add(std::span(before).subspan(half), std::span(after).subspan(half));
    }));
    return std::pair(k.Relative(), v.Relative());
  }

  Json ToJson() const {
    double worst = 1e9;
    size_t total = 0;
    for (size_t i = 0; i < prompts_.size(); ++i) {
      total += prompt_frames_[i];
      worst = std::min(worst, Ratio(prompt_bytes_[i], prompt_frames_[i]));
    }
    return {{"codec", contender_.name},          {"one_extent_in", contender_.every},
            {"ratio", Ratio(raw_bytes_, total)}, {"worst_prompt", worst},
            {"encode_gb_per_s", EncodeRate()},   {"decode_gb_per_s", Median(decode_)}};
  }
  double EncodeRate() const { return Median(encode_); }
  const std::string& name() const { return contender_.name; }

 private:
  // As Corpus::ForEach.
  template <typename Function>
  void ForEachTaken(const Prompt& prompt, Function function) const {
    size_t index = 0;
    corpus_.ForEach(prompt, [&](int32_t layer, std::span<const std::byte> extent) {
      if (index++ % contender_.every == 0) function(layer, extent);
    });
  }
  static double Ratio(size_t raw, size_t frames) {
    return static_cast<double>(raw) / static_cast<double>(frames);
  }
  double GigabytesPerSecond(double began) const {
    return static_cast<double>(raw_bytes_) / 1e9 / (CpuSeconds() - began);
  }

  absl::Status Encode() {
    frames_.sizes.clear();
    prompt_frames_.clear();
    absl::Status status;
    size_t at = 0;
    for (const Prompt& prompt : prompts_) {
      const size_t first = at;
      ForEachTaken(prompt, [&](int32_t layer, std::span<const std::byte> extent) {
        const auto size = EncodeFrame(contender_.codec.get(), corpus_.shape, {.layer = layer},
                                      extent, std::span(frames_.bytes).subspan(at));
        status.Update(size.status());
        frames_.sizes.push_back(size.value_or(0));
        at += frames_.sizes.back();
      });
      prompt_frames_.push_back(at - first);
    }
    return status;
  }

  // What comes back is compared in the hash of each frame, unless the codec changes it. Calls
  // `each(extent)` with what was encoded when it lies decoded in back_.
  template <typename Function>
  absl::Status Decode(Function each) {
    absl::Status status;
    size_t at = 0;
    size_t index = 0;
    for (const Prompt& prompt : prompts_) {
      ForEachTaken(prompt, [&](int32_t layer, std::span<const std::byte> extent) {
        const size_t size = frames_.sizes[index++];
        status.Update(DecodeFrame(contender_.codec.get(), corpus_.shape, layer,
                                  std::span(frames_.bytes).subspan(at, size), back_));
        at += size;
        each(extent);
      });
    }
    return status;
  }

  const Corpus& corpus_;
  const std::span<const Prompt> prompts_;
  const Contender contender_;
  std::vector<size_t> prompt_bytes_;  // of the extents that it takes
  size_t raw_bytes_ = 0;
  Frames frames_;
  std::vector<std::byte> back_;
  std::vector<size_t> prompt_frames_;  // bytes
  std::vector<double> encode_;
  std::vector<double> decode_;
};

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
  for (const QuantisedBits bits : {QuantisedBits{8, 8}, {6, 5}, {5, 4}, {4, 3}}) {
    auto codec = NewQuantisedCodec(bits);
    if (codec->Fits(shape, 0)) {
      all.push_back({.name = fmt::format("k{}v{}", bits.k, bits.v), .codec = std::move(codec)});
    }
  }
  all.push_back({slow + " runtime", NewBytePlaneCodec(PlanePredictors::kRuntime), kSlowTakesOneIn});
  return all;
}

// How many times faster mask-rice encodes than byte-plane, which is also printed.
Json TimesFaster(std::span<const std::unique_ptr<Measured>> all) {
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
  ASSIGN_OR_RETURN(const Corpus corpus, Prefilled(flags));
  const size_t half = corpus.prompts.size() / 2;
  CodecCalibrator calibrator(corpus.shape, corpus.num_layers);
  for (const Prompt& prompt : std::span(corpus.prompts).first(half)) {
    corpus.ForEach(prompt, [&](int32_t layer, auto extent) { calibrator.Add(layer, extent); });
  }
  const auto tables = std::make_shared<const CodecTables>(calibrator.Build());
  const auto others = std::span(corpus.prompts).subspan(half);
  std::vector<std::unique_ptr<Measured>> all;
  for (Contender& contender : Contenders(corpus.shape, tables)) {
    all.push_back(std::make_unique<Measured>(corpus, others, std::move(contender)));
  }
  std::vector<double> copies;
  for (int32_t round = 0; round < flags.rounds; ++round) {
    copies.push_back(MemcpyRate(corpus, others));
    for (const auto& one : all) RETURN_IF_ERROR(one->RunOnce());
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
