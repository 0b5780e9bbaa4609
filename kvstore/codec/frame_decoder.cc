#include "kvstore/codec/frame_decoder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/status.h"
#include "kvstore/codec/rounded.h"

namespace tandem {
namespace {

constexpr std::array kLossless = {CodecId::kMaskRice, CodecId::kF3};

}  // namespace

void FrameDecoder::AddTables(const std::shared_ptr<const CodecTables>& tables) {
  const std::vector<uint64_t> ids = table_ids();
  const uint64_t id = tables->for_rounding() ? tables->rounding_id() : tables->id();
  if (std::ranges::find(ids, id) != ids.end()) return;
  if (known_.size() == kMostTables) known_.erase(known_.begin());
  Known known = {.tables = tables, .codecs = {}};
  for (const CodecId lossless : kLossless) known.codecs.push_back(NewKvCodec(lossless, tables));
  if (tables->for_rounding()) {
    for (const float step : steps_) known.codecs.push_back(NewRoundedCodec(tables, step));
  }
  known_.push_back(std::move(known));
}

std::vector<uint64_t> FrameDecoder::table_ids() const {
  std::vector<uint64_t> ids;
  for (const Known& known : known_) {
    ids.push_back(known.tables->id());
    if (known.tables->for_rounding()) ids.push_back(known.tables->rounding_id());
  }
  return ids;
}

absl::Status FrameDecoder::Decode(const ExtentShape& shape, int32_t layer,
                                  std::span<const std::byte> frame,
                                  std::span<std::byte> raw) const {
  ASSIGN_OR_RETURN(const FrameCodec named, CodecOfFrame(frame));
  const bool may = named.codec != CodecId::kRounded || reads_rounded_;
  const KvCodec* found = nullptr;
  for (const Known& known : known_) {
    for (const auto& codec : known.codecs) {
      const bool is_it = codec->id() == named.codec && codec->tables_id() == named.tables;
      if (may && is_it) found = codec.get();
    }
  }
  return DecodeFrame(found, shape, layer, frame, raw);
}

}  // namespace tandem
