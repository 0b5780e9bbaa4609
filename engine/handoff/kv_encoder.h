#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/kv_quality.h"
#include "engine/handoff/codec_drift.h"
#include "engine/handoff/codec_samples.h"
#include "engine/handoff/overruns.h"
#include "engine/request.h"
#include "engine/stats.h"
#include "kvstore/codec/extent_parts.h"
#include "kvstore/codec/kv_codec.h"
#include "kvstore/kv_layout.h"
#include "scheduler/latency_model/codec_model.h"
#include "transfer/transport.h"

namespace tandem {

// How the KV of one stream is encoded.
struct StreamEncoding {
  bool frames = false;  // the peer reads frames: blocks that are not full may be packed
  std::shared_ptr<const KvCodec> codec;  // null: full blocks go as they are
  // Tokens at the front of the prompt and at its end that a codec which changes KV keeps as they are.
  int32_t exact_front = 0;
  int32_t exact_back = 0;
  // The codec's tables, which the peer does not have yet; empty where it has them or needs none.
  std::vector<std::byte> tables;
  ModelTime expected{};  // of the transfer; 0 where the rate of the link is not known
  size_t way = 0;        // for KvEncoder::Learn
};

// What the encoded streams of a prefill worker have in common: the codecs, whose tables are made of the
// first KV that leaves, and of later KV when they no longer fit; how fast they are here; the choice of a
// codec for each stream; and the limit of the memory for KV that is encoded and not acknowledged yet.
// Thread-safe.
class KvEncoder {
 public:
  static constexpr uint64_t kProbedExtents = 128;

  struct Options {
    KvLayout layout;               // of the pool, in the host's memory
    std::optional<CodecId> codec;  // for every stream whose peer reads it; nothing: the fastest one
    // All KV goes as it is; of every kProbedExtents extents one is encoded by mask-rice, and thrown away, to
    // know what encoding would do.
    bool probes = false;
    int64_t most_bytes = 256 << 20;  // of KV that waits to be encoded, and encoded KV
  };
  KvEncoder(const Options& options, const Clock& clock);

  const KvLayout& layout() const { return options_.layout; }

  // A stream that is to be opened.
  struct Demand {
    SendLink link;
    int64_t bytes = 0;  // of KV, about
    KvQuality quality = KvQuality::kExact;
  };
  // The encoding of a stream to a peer.
  StreamEncoding Choose(const HandoffTarget& target, const Demand& demand);

  // A transfer that Choose began has been acknowledged. Computing its KV took `computing` of the time.
  struct Outcome {
    size_t way = 0;
    Duration took{};
    Duration computing{};
  };
  void Learn(const HandoffTarget& target, const Demand& demand, const Outcome& outcome);

  // Whether KV is needed to make tables of.
  bool calibrates() const { return calibrates_; }
  // Whether extents that are sent as they are should be given to Sample.
  bool takes_samples() const { return calibrates_ || options_.probes; }
  // Takes an extent that is sent as it is for new tables, or for the probe.
  void Sample(int32_t layer, int32_t tokens, std::span<const std::byte> extent);
  // Counts the exponents of an extent, until there are tables. Encode does so itself.
  void Calibrate(int32_t layer, std::span<const std::byte> extent);

  // What became of an extent that is to be encoded.
  struct Encoded {
    // The size of its frame. Nothing where that would not be smaller than the extent, which is then to be sent as
    // it is.
    std::optional<size_t> size;
    ExtentParts parts;
  };
  // Encodes an extent, of which the first `tokens` tokens are sent, into `out`. `codec` is one that Choose
  // returned, `out` has ExtentBytes().
  Encoded Encode(const KvCodec* codec, const ExtentPlace& place, int32_t tokens,
                 std::span<const std::byte> extent, std::span<std::byte> out);

  // Takes so many bytes of the limit for `extents` extents. False when too few are left: these are sent as
  // they are, and counted.
  bool Reserve(int64_t bytes, size_t extents);
  void GiveBack(int64_t bytes) { reserved_ -= bytes; }

  // Bytes of KV for each byte that is sent to the peer, by the latest choice for a stream that may lose
  // nothing.
  double RatioTo(const std::string& data_address) const;
  // Sets the fields about codecs.
  void AddTo(EngineStats& stats) const;

 private:
  // One way to encode KV.
  struct Known {
    CodecId id = CodecId::kRaw;
    KvQuality quality = KvQuality::kExact;  // of the streams that it is for; kExact: of all
    std::shared_ptr<const KvCodec> codec;   // null: raw, or not made yet
    CodecModel model;                       // of one thread
    double expected_ratio = 1;              // of the KV that the tables were made of
    CodecDrift drift;
    WireCodecStats counts;
  };
  ExtentShape ShapeOf(int32_t tokens) const;
  static std::unique_ptr<KvCodec> NewCodec(const Known& known,
                                           const std::shared_ptr<const CodecTables>& tables);
  struct Peer {
    size_t latest = 0;  // the way of the latest stream
    Overruns overruns;
  };
  // What is known of way `index` to a peer.
  CodecModel ModelOf(size_t index, const Peer& peer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BuildCodecs(const CodecCalibrator& calibrator, const CodecSamples& samples);
  size_t IndexFor(const HandoffTarget& target, const Demand& demand, const Peer& peer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Known& KnownOf(const KvCodec* codec) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Counts an extent, of which all tokens of a block are KV where it is `full`.
  void Observe(const KvCodec* codec, const ExtentParts& parts, bool full, Duration took);
  // Begins to count exponents for new tables. The old ones serve until these are made.
  void CalibrateAgain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const Clock& clock_;
  std::atomic<bool> calibrates_;
  std::atomic<int64_t> reserved_ = 0;
  std::atomic<uint64_t> probes_ = 0;  // extents that were offered to the probe

  mutable absl::Mutex mutex_;
  std::unique_ptr<CodecCalibrator> calibrator_ ABSL_GUARDED_BY(mutex_);  // null: the tables fit
  int64_t calibrated_tokens_ ABSL_GUARDED_BY(mutex_) = 0;                // of the last layer
  CodecSamples samples_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::byte> tables_ ABSL_GUARDED_BY(mutex_);
  std::vector<Known> known_ ABSL_GUARDED_BY(mutex_);  // raw is the first
  // By address and quality. Ways are indices into known_.
  absl::flat_hash_map<std::pair<std::string, KvQuality>, Peer> peers_ ABSL_GUARDED_BY(mutex_);
  uint64_t unencoded_extents_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t calibrations_ ABSL_GUARDED_BY(mutex_) = 0;  // how often tables were made
};

}  // namespace tandem
