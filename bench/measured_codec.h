#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/codec_corpus.h"
#include "kvstore/codec/kv_codec.h"
#include "nlohmann/json.hpp"

namespace tandem {

// A codec under the name that its row has.
struct Contender {
  std::string name;
  std::unique_ptr<KvCodec> codec;  // null: raw
  size_t every = 1;                // it takes one extent in so many
};

// Seconds of the processor that this process has used.
double CpuSeconds();

// Encodes and decodes some texts with one codec and keeps the sizes, the rates and the errors. Not thread-safe:
// it sets the target of Highway for the whole process.
class MeasuredCodec {
 public:
  // The corpus and the texts, which are some of its own, must outlive this object.
  MeasuredCodec(const Corpus& corpus, std::span<const Prompt> prompts, Contender contender);

  // Encodes and decodes the texts with the instructions of one of Highway's targets; 0 is the best that the
  // processor has.
  absl::Status RunOnce(int64_t target);

  bool lossless() const { return contender_.codec == nullptr || contender_.codec->lossless(); }
  const std::string& name() const { return contender_.name; }
  // GB of raw KV that are encoded in a second: the median of the runs with the best target.
  double EncodeRate() const;

  // The relative errors of K and of V.
  absl::StatusOr<std::pair<double, double>> Errors();
  // Sizes and rates after at least one run with the best target.
  nlohmann::json ToJson() const;

 private:
  // GB of raw KV per second in each run.
  struct Rates {
    std::vector<double> encode;
    std::vector<double> decode;
  };
  // All frames of the texts, one after another.
  struct Frames {
    std::vector<std::byte> bytes;
    std::vector<size_t> sizes;
  };

  template <typename Function>
  void ForEachTaken(const Prompt& prompt, Function function) const;
  template <typename Function>
  absl::Status Decode(Function each);
  absl::Status Encode();
  double GigabytesPerSecond(double began) const;

  const Corpus& corpus_;
  const std::span<const Prompt> prompts_;
  const Contender contender_;
  std::vector<size_t> prompt_bytes_;  // raw bytes of the extents that are taken of each text
  size_t raw_bytes_ = 0;
  Frames frames_;
  std::vector<std::byte> back_;        // one extent, decoded
  std::vector<size_t> prompt_frames_;  // bytes of the frames of each text
  std::map<int64_t, Rates> rates_;     // by target
};

}  // namespace tandem
