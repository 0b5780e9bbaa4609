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
#include "kvstore/codec/kv_sensitivity.h"
#include "kvstore/kv_layout.h"
#include "scheduler/latency_model/codec_model.h"
#include "transfer/transport.h"

namespace tandem {

// How the KV of one stream is encoded.
struct StreamEncoding {
  bool frames = false;  // the peer reads frames, so blocks that are not full may be packed
  std::shared_ptr<const KvCodec> codec;  // null: full blocks go as they are
  // The number of tokens at the front of the prompt that a lossy codec leaves unchanged.
  int32_t exact_front = 0;
  // The codec's tables, where the peer does not have them yet; empty where it has them or needs
  // none.
  std::vector<std::byte> tables;
  ModelTime expected{};  // expected time of the transfer; 0: the rate of the link is unknown
  size_t way = 0;        // index of the way to encode, for KvEncoder::Learn
};

// What the encoded streams of a prefill worker have in common: the codecs, whose tables are made
// from the first KV that is sent, and anew from later KV when they no longer fit; the measured
// speeds of the codecs; the choice of a codec for each stream; and the limit of the memory for KV
// that is encoded and not acknowledged yet.
// Thread-safe.
class KvEncoder {
 public:
  static constexpr uint64_t kProbedExtents = 128;

  struct Options {
    KvLayout layout;               // layout of the pool, which is in the host's memory
    std::optional<CodecId> codec;  // used where the peer reads it; none: the fastest codec
    // Send all KV as it is, but encode one of every kProbedExtents extents with mask-rice and
    // discard the result, to measure what encoding would achieve.
    bool probes = false;
    // Decides in which layers KV is rounded in finer steps; empty: all alike.
    KvSensitivity sensitivity;
    int64_t most_bytes = 256 << 20;  // limit for KV that waits to be encoded and for encoded KV
  };
  KvEncoder(const Options& options, const Clock& clock);

  const KvLayout& layout() const { return options_.layout; }

  // What is known about a stream before it is opened.
  struct Demand {
    SendLink link;
    int64_t bytes = 0;  // approximate size of the KV to send
    KvQuality quality = KvQuality::kExact;
  };
  // Chooses the encoding of a stream to the peer `target`.
  StreamEncoding Choose(const HandoffTarget& target, const Demand& demand);

  // A transfer whose encoding Choose chose has been acknowledged. Of the time `took`, its KV was
  // still being computed for `computing`.
  struct Outcome {
    size_t way = 0;
    Duration took{};
    Duration computing{};
  };
  void Learn(const HandoffTarget& target, const Demand& demand, const Outcome& outcome);

  // Whether KV is needed to make the codecs' tables from.
  bool calibrates() const { return calibrates_; }
  // Whether extents that are sent as they are should be given to Sample.
  bool takes_samples() const { return calibrates_ || options_.probes; }
  // Uses an extent that is sent as it is to make new tables or as a probe (Options::probes).
  void Sample(int32_t layer, int32_t tokens, std::span<const std::byte> extent);
  // Counts the exponents of an extent, until there are tables. Encode calls this itself.
  void Calibrate(int32_t layer, std::span<const std::byte> extent);

  // The result of encoding an extent.
  struct Encoded {
    // The size of the encoded frame. None where that is not smaller than the extent, which is then
    // to be sent as it is.
    std::optional<size_t> size;
    ExtentParts parts;
  };
  // Encodes an extent into `out`, which has room for ExtentBytes(). The first `tokens` tokens of
  // the extent are sent. `codec` is one that Choose returned.
  Encoded Encode(const KvCodec* codec, const ExtentPlace& place, int32_t tokens,
                 std::span<const std::byte> extent, std::span<std::byte> out);

  // Reserves `bytes` of the memory limit for `extents` extents. False when too few are left: the
  // extents are then to be sent as they are, and are counted.
  bool Reserve(int64_t bytes, size_t extents);
  void GiveBack(int64_t bytes) { reserved_ -= bytes; }

  // The ratio of the KV's bytes to the bytes sent for it to a peer, for the codec of the latest
  // lossless stream to it.
  double RatioTo(const std::string& data_address) const;
  // Sets the fields of `stats` about codecs.
  void AddTo(EngineStats& stats) const;

 private:
  // One way to encode KV, and what was measured of it.
  struct Known {
    CodecId id = CodecId::kRaw;
    KvQuality quality = KvQuality::kExact;  // class of streams that may use it; kExact: all
    std::shared_ptr<const KvCodec> codec;   // null: raw, or not made yet
    CodecModel model;                       // speed and compression ratio with one thread
    double expected_ratio = 1;              // ratio for the KV from which the tables were made
    CodecDrift drift;
    WireCodecStats counts;
  };
  ExtentShape ShapeOf(int32_t tokens) const;
  static std::unique_ptr<KvCodec> NewCodec(const Known& known,
                                           const std::shared_ptr<const CodecTables>& tables);
  struct Peer {
    size_t latest = 0;  // index in known_ of the latest stream's way to encode
    Overruns overruns;
  };
  // The model of the transfer time for known_[index], corrected by what was observed of this peer.
  CodecModel ModelOf(size_t index, const Peer& peer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BuildCodecs(const CodecCalibrator& calibrator, const CodecSamples& samples);
  size_t IndexFor(const HandoffTarget& target, const Demand& demand, const Peer& peer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Known& KnownOf(const KvCodec* codec) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Counts an encoded extent. `full`: all tokens of its block hold KV.
  void Observe(const KvCodec* codec, const ExtentParts& parts, bool full, Duration took);
  // Begins to count exponents for new tables. The old tables are used until the new ones are made.
  void CalibrateAgain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const Clock& clock_;
  std::atomic<bool> calibrates_;
  std::atomic<int64_t> reserved_ = 0;
  std::atomic<uint64_t> probes_ = 0;  // extents that could have been probed

  mutable absl::Mutex mutex_;
  std::unique_ptr<CodecCalibrator> calibrator_ ABSL_GUARDED_BY(mutex_);  // null: the tables fit
  int64_t calibrated_tokens_ ABSL_GUARDED_BY(mutex_) = 0;  // counted at the last layer
  CodecSamples samples_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const CodecTables> tables_ ABSL_GUARDED_BY(mutex_);  // of the latest codecs
  std::vector<Known> known_ ABSL_GUARDED_BY(mutex_);                   // raw is the first
  // Keyed by the peer's address and the quality of the stream.
  absl::flat_hash_map<std::pair<std::string, KvQuality>, Peer> peers_ ABSL_GUARDED_BY(mutex_);
  uint64_t unencoded_extents_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t calibrations_ ABSL_GUARDED_BY(mutex_) = 0;  // how often tables were made
};

}  // namespace tandem
