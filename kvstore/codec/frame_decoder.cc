#include "kvstore/codec/frame_decoder.h"

#include <algorithm>
#include <array>

#include "base/status.h"
#include "kvstore/codec/rounded.h"

namespace tandem {
namespace {

constexpr std::array kLossless = {CodecId::kMaskRice, CodecId::kF3};

}  // namespace

void FrameDecoder::AddTables(const std::shared_ptr<const CodecTables>& tables) {
  const std::vector<uint64_t> known = table_ids();
  if (std::ranges::find(known, tables->id()) != known.end()) return;
  if (tables_.size() == kMostTables) {
    tables_.erase(tables_.begin());
    codecs_.erase(codecs_.begin(), codecs_.begin() + std::ssize(kLossless) + std::ssize(steps_));
  }
  tables_.push_back(tables);
  for (const CodecId id : kLossless) codecs_.push_back(NewKvCodec(id, tables));
  for (const float step : steps_) codecs_.push_back(NewRoundedCodec(tables, step));
}

std::vector<uint64_t> FrameDecoder::table_ids() const {
  std::vector<uint64_t> ids;
  for (const auto& tables : tables_) ids.push_back(tables->id());
  return ids;
}

absl::Status FrameDecoder::Decode(const ExtentShape& shape, int32_t layer,
                                  std::span<const std::byte> frame,
                                  std::span<std::byte> raw) const {
  ASSIGN_OR_RETURN(const FrameCodec named, CodecOfFrame(frame));
  const bool may = named.codec != CodecId::kRounded || reads_rounded_;
  const auto codec = std::ranges::find_if(codecs_, [&](const auto& one) {
    return may && one->id() == named.codec && one->tables_id() == named.tables;
  });
  return DecodeFrame(codec == codecs_.end() ? nullptr : codec->get(), shape, layer, frame, raw);
}

}  // namespace tandem
