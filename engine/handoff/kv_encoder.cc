#include "engine/handoff/kv_encoder.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "engine/handoff/rounding.h"
#include "kvstore/codec/packed_extent.h"
#include "kvstore/codec/rounded.h"
#include "kvstore/kv_parts.h"

namespace tandem {
namespace {

// The weight of the latest extent in the moving means of a codec's rate and compression ratio.
constexpr double kWeight = 0.02;
constexpr size_t kMostPeers = 256;
// The share of a codec thread's rate that remains while steps, transports and the peer compete for
// the same cores. On two cores two workers do not reach the rate of all their threads; assuming the
// full rate made hand-offs over 1 GB/s slower by half.
constexpr double kShareOfThread = 0.5;

void MoveTo(double& mean, double value) {
  mean = mean == 0 ? value : mean + kWeight * (value - mean);
}

}  // namespace

KvEncoder::KvEncoder(const Options& options, const Clock& clock)
    : options_(options),
      clock_(clock),
      calibrates_(options.codec != CodecId::kRaw && !IsQuantisedKv(options.layout.dtype)),
      calibrator_(calibrates_ ? std::make_unique<CodecCalibrator>(
                                    ShapeOf(options.layout.block_tokens), options.layout.num_layers)
                              : nullptr),
      samples_(ShapeOf(options.layout.block_tokens), options.layout.num_layers) {
  for (const CodecId id : {CodecId::kRaw, CodecId::kMaskRice, CodecId::kF3}) {
    known_.push_back({.id = id});
  }
  for (const KvQuality quality : kRoundingClasses) {
    known_.push_back({.id = CodecId::kRounded, .quality = quality});
  }
  for (Known& known : known_) {
    known.counts.codec = known.id;
    known.counts.name = std::string(CodecName(known.id));
  }
}

ExtentShape KvEncoder::ShapeOf(int32_t tokens) const {
  const KvLayout& layout = options_.layout;
  return {layout.dtype, layout.num_kv_heads, layout.head_dim, tokens};
}

StreamEncoding KvEncoder::Choose(const HandoffTarget& target, const Demand& demand) {
  if (!demand.link.takes_any_memory || target.reads.codecs.empty()) return {};
  absl::MutexLock lock(&mutex_);
  if (peers_.size() >= kMostPeers) peers_.clear();
  Peer& peer = peers_[{target.data_address, demand.quality}];
  const size_t index = options_.probes ? 0 : IndexFor(target, demand, peer);
  peer.latest = index;
  Known& known = known_[index];
  ++known.counts.streams;
  StreamEncoding encoding = {.frames = true, .codec = known.codec, .tables = {}};
  const double link = demand.link.gigabytes_per_second * 1e9;
  if (link > 0) encoding.expected = ModelOf(index, peer).Transfer(demand.bytes, link);
  encoding.way = index;
  encoding.exact_front = RoundingOf(known.quality).exact_front;
  if (known.codec != nullptr) {
    const bool rounds = known.id == CodecId::kRounded;
    const auto use = rounds ? CodecTables::Use::kRounding : CodecTables::Use::kLossless;
    const uint64_t id = rounds ? tables_->rounding_id() : tables_->id();
    if (!target.reads.HasTables(id)) encoding.tables = tables_->Serialize(use);
  }
  return encoding;
}

// Returns the way to encode a stream. A codec that the options name is used instead of the fastest
// lossless one. Where loss is allowed, naming a codec other than raw means that encoding is wanted:
// then the lossy codec is used.
size_t KvEncoder::IndexFor(const HandoffTarget& target, const Demand& demand, const Peer& peer) {
  std::vector<size_t> usable = {0};
  std::vector<CodecModel> models = {ModelOf(0, peer)};
  size_t named = 0;
  for (size_t i = 1; i < known_.size(); ++i) {
    const Known& known = known_[i];
    const bool is_allowed = known.quality == KvQuality::kExact || known.quality == demand.quality;
    if (!is_allowed || known.codec == nullptr || !target.reads.Has(known.id)) continue;
    if (options_.codec == known.id || known.quality != KvQuality::kExact) named = i;
    usable.push_back(i);
    models.push_back(ModelOf(i, peer));
  }
  if (options_.codec) return options_.codec == CodecId::kRaw ? 0 : named;
  // As long as the rate of the link is unknown, nothing shows that a codec would pay.
  if (demand.link.gigabytes_per_second <= 0) return 0;
  const auto previous = std::ranges::find(usable, peer.latest);
  return usable[FastestCodec(models, static_cast<size_t>(previous - usable.begin()), demand.bytes,
                             demand.link.gigabytes_per_second * 1e9)];
}

CodecModel KvEncoder::ModelOf(size_t index, const Peer& peer) const {
  CodecModel model = known_[index].model;
  model.more_seconds_per_byte = peer.overruns.SecondsPerByte(index);
  model.encode_bytes_per_second *= kShareOfThread;
  model.decode_bytes_per_second *= kShareOfThread;
  return model;
}

// Learns from the time of a transfer, unless that time was spent waiting for the KV to be computed:
// then it shows nothing about the link or the codec.
void KvEncoder::Learn(const HandoffTarget& target, const Demand& demand, const Outcome& outcome) {
  if (demand.bytes <= 0 || demand.link.gigabytes_per_second <= 0) return;
  absl::MutexLock lock(&mutex_);
  const auto peer = peers_.find({target.data_address, demand.quality});
  if (peer == peers_.end()) return;
  CodecModel model = ModelOf(outcome.way, peer->second);
  model.more_seconds_per_byte = 0;
  const ModelTime expected = model.Transfer(demand.bytes, demand.link.gigabytes_per_second * 1e9);
  if (ModelTime(outcome.computing) >= expected) return;
  peer->second.overruns.Add(outcome.way, demand.bytes,
                            std::chrono::duration<double>(outcome.took - expected).count());
}

void KvEncoder::Sample(int32_t layer, int32_t tokens, std::span<const std::byte> extent) {
  if (calibrates_) return Calibrate(layer, extent);
  if (!options_.probes || probes_++ % kProbedExtents != 0) return;
  std::shared_ptr<const KvCodec> codec;
  {
    absl::MutexLock lock(&mutex_);
    codec = std::ranges::find(known_, CodecId::kMaskRice, &Known::id)->codec;
  }
  if (codec == nullptr) return;
  thread_local std::vector<std::byte> unused;
  unused.resize(extent.size());
  Encode(codec.get(), {.layer = layer}, tokens, extent, unused);
}

void KvEncoder::Calibrate(int32_t layer, std::span<const std::byte> extent) {
  std::unique_ptr<CodecCalibrator> complete;
  CodecSamples samples(ShapeOf(options_.layout.block_tokens), options_.layout.num_layers);
  {
    absl::MutexLock lock(&mutex_);
    if (calibrator_ == nullptr) return;
    calibrator_->Add(layer, extent);
    samples_.Keep(layer, extent);
    if (layer + 1 == options_.layout.num_layers) {
      calibrated_tokens_ += options_.layout.block_tokens;
    }
    if (calibrated_tokens_ < CodecCalibrator::kEnoughTokens) return;
    calibrates_ = false;
    complete = std::move(calibrator_);
    std::swap(samples, samples_);
  }
  BuildCodecs(*complete, samples);
}

void KvEncoder::BuildCodecs(const CodecCalibrator& calibrator, const CodecSamples& samples) {
  const auto tables = std::make_shared<const CodecTables>(calibrator.Build(options_.sensitivity));
  std::vector<Known> made;
  {
    absl::MutexLock lock(&mutex_);
    made = known_;
  }
  const ExtentShape shape = ShapeOf(options_.layout.block_tokens);
  for (Known& known : made) {
    std::unique_ptr<KvCodec> codec = NewCodec(known, tables);
    if (codec == nullptr || !codec->Fits(shape, 0)) continue;
    known.model = samples.Measure(*codec, clock_);
    known.expected_ratio = known.model.ratio;
    known.drift = {};
    known.codec = std::move(codec);
    LogInfo("kv_codec={} tables={:016x} ratio={:.3f} encode_gb_per_s={:.2f} decode_gb_per_s={:.2f}",
            known.codec->name(), tables->id(), known.model.ratio,
            known.model.encode_bytes_per_second / 1e9, known.model.decode_bytes_per_second / 1e9);
  }
  absl::MutexLock lock(&mutex_);
  tables_ = tables;
  ++calibrations_;
  for (size_t i = 0; i < known_.size(); ++i) {
    if (made[i].codec == nullptr) continue;
    known_[i].codec = std::move(made[i].codec);
    known_[i].model = made[i].model;
    known_[i].expected_ratio = made[i].expected_ratio;
    known_[i].drift = made[i].drift;
    known_[i].counts.name = known_[i].codec->name();
  }
}

std::unique_ptr<KvCodec> KvEncoder::NewCodec(const Known& known,
                                             const std::shared_ptr<const CodecTables>& tables) {
  if (known.id == CodecId::kRaw) return nullptr;
  if (known.id != CodecId::kRounded) return NewKvCodec(known.id, tables);
  return NewRoundedCodec(tables, RoundingOf(known.quality).step);
}

KvEncoder::Encoded KvEncoder::Encode(const KvCodec* codec, const ExtentPlace& place, int32_t tokens,
                                     std::span<const std::byte> extent, std::span<std::byte> out) {
  thread_local std::vector<std::byte> packed;
  const bool full = tokens == options_.layout.block_tokens;
  if (full && calibrates_) Calibrate(place.layer, extent);
  const TimePoint began = clock_.Now();
  const ExtentShape shape = ShapeOf(tokens);
  std::span<const std::byte> raw = extent;
  if (!full) {
    packed.resize(shape.Bytes());
    PackTokens(shape, options_.layout.block_tokens, extent, packed);
    raw = packed;
  }
  Encoded encoded;
  const auto size = EncodeFrame(codec, shape, place, raw, out, &encoded.parts);
  if (size.ok() && *size < extent.size()) {
    encoded.size = *size;
  } else {
    encoded.parts = PartsOfRawExtent(options_.layout, tokens);
  }
  Observe(codec, encoded.parts, full, clock_.Now() - began);
  return encoded;
}

// Finds the entry of the codec that a stream uses. That may be a codec with older tables, because a
// stream keeps its codec when new tables are made.
KvEncoder::Known& KvEncoder::KnownOf(const KvCodec* codec) {
  const std::string name = codec == nullptr ? "raw" : codec->name();
  return *std::ranges::find_if(known_,
                               [&name](const Known& known) { return known.counts.name == name; });
}

void KvEncoder::Observe(const KvCodec* codec, const ExtentParts& parts, bool full, Duration took) {
  absl::MutexLock lock(&mutex_);
  Known& known = KnownOf(codec);
  known.counts.k.Add(parts.k);
  known.counts.v.Add(parts.v);
  if (known.codec == nullptr || took <= Duration{}) return;
  const uint64_t kv_bytes = parts.k.kv_bytes + parts.v.kv_bytes;
  const uint64_t wire_bytes = parts.k.wire_bytes + parts.v.wire_bytes;
  MoveTo(known.model.encode_bytes_per_second, BytesPerSecond(kv_bytes, took));
  MoveTo(known.model.ratio, static_cast<double>(kv_bytes) / static_cast<double>(wire_bytes));
  if (!full || known.codec.get() != codec || known.id == CodecId::kRounded) return;
  if (known.drift.Add(kv_bytes, wire_bytes, known.expected_ratio)) CalibrateAgain();
}

void KvEncoder::CalibrateAgain() {
  if (calibrator_ != nullptr) return;
  LogInfo("the tables of the KV codecs no longer fit: they are made again");
  const ExtentShape shape = ShapeOf(options_.layout.block_tokens);
  calibrator_ = std::make_unique<CodecCalibrator>(shape, options_.layout.num_layers);
  samples_ = CodecSamples(shape, options_.layout.num_layers);
  calibrated_tokens_ = 0;
  calibrates_ = true;
}

bool KvEncoder::Reserve(int64_t bytes, size_t extents) {
  if (reserved_.fetch_add(bytes) + bytes <= options_.most_bytes) return true;
  reserved_ -= bytes;
  absl::MutexLock lock(&mutex_);
  unencoded_extents_ += extents;
  return false;
}

double KvEncoder::RatioTo(const std::string& data_address) const {
  absl::MutexLock lock(&mutex_);
  const auto peer = peers_.find({data_address, KvQuality::kExact});
  return peer == peers_.end() ? 1 : known_[peer->second.latest].model.ratio;
}

void KvEncoder::AddTo(EngineStats& stats) const {
  absl::MutexLock lock(&mutex_);
  stats.unencoded_extents = unencoded_extents_;
  stats.codec_calibrations = calibrations_;
  stats.wire_codecs.clear();
  for (const Known& known : known_) {
    WireCodecStats counts = known.counts;
    counts.encode_gigabytes_per_second = known.model.encode_bytes_per_second / 1e9;
    counts.decode_gigabytes_per_second = known.model.decode_bytes_per_second / 1e9;
    stats.wire_codecs.push_back(counts);
  }
}

}  // namespace tandem
