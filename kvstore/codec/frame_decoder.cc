#include "kvstore/codec/frame_decoder.h"

#include <algorithm>
#include <array>

#include "base/status.h"
#include "kvstore/codec/quantised.h"

namespace tandem {
namespace {

constexpr std::array kWithTables = {CodecId::kMaskRice, CodecId::kF3};

}  // namespace

void FrameDecoder::AddTables(const std::shared_ptr<const CodecTables>& tables) {
  const std::vector<uint64_t> known = table_ids();
  if (std::ranges::find(known, tables->id()) != known.end()) return;
  if (codecs_.size() == kMostTables * kWithTables.size()) {
    codecs_.erase(codecs_.begin(), codecs_.begin() + std::ssize(kWithTables));
  }
  for (const CodecId id : kWithTables) codecs_.push_back(NewKvCodec(id, tables));
}

std::vector<uint64_t> FrameDecoder::table_ids() const {
  std::vector<uint64_t> ids;
  for (size_t i = 0; i < codecs_.size(); i += kWithTables.size()) {
    ids.push_back(codecs_[i]->tables_id());
  }
  return ids;
}

void FrameDecoder::ReadQuantised() { quantised_ = NewQuantisedCodec({}); }

absl::Status FrameDecoder::Decode(const ExtentShape& shape, int32_t layer,
                                  std::span<const std::byte> frame,
                                  std::span<std::byte> raw) const {
  ASSIGN_OR_RETURN(const FrameCodec named, CodecOfFrame(frame));
  if (named.codec == CodecId::kQuantised) {
    return DecodeFrame(quantised_.get(), shape, layer, frame, raw);
  }
  const auto codec = std::ranges::find_if(codecs_, [&](const auto& one) {
    return one->id() == named.codec && one->tables_id() == named.tables;
  });
  return DecodeFrame(codec == codecs_.end() ? nullptr : codec->get(), shape, layer, frame, raw);
}

}  // namespace tandem
