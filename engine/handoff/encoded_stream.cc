#include "engine/handoff/encoded_stream.h"

#include <algorithm>

#include "base/status.h"

namespace tandem {
namespace {

// The size of the pieces in which KV is encoded and sent: large enough that waking the transport
// for each piece costs little, small enough that the link and the codec workers are busy at the
// same time.
constexpr int64_t kPieceBytes = 512 << 10;

int64_t BytesOf(std::span<const PostedExtent> extents) {
  int64_t bytes = 0;
  for (const PostedExtent& extent : extents) bytes += std::ssize(extent.payload);
  return bytes;
}

}  // namespace

absl::StatusOr<EncodedStream::Opened> EncodedStream::Open(const Parts& parts,
                                                          const HandoffTarget& target,
                                                          Prompt prompt, Duration renew_every,
                                                          StreamEnded ended) {
  const int64_t bytes =
      (prompt.tokens - target.cached_tokens) * parts.encoder.layout().BytesPerToken();
  auto stream = std::make_shared<EncodedStream>(parts, std::move(prompt), std::move(ended));
  // The transport drops its callback, and with it this reference, once the stream has ended.
  const auto on_ended = [stream](uint64_t id, uint64_t epoch, const absl::Status& status) {
    stream->OnEnded({.stream = id, .epoch = epoch}, status);
  };
  ASSIGN_OR_RETURN(stream->inner_,
                   parts.transport.OpenStream(target.data_address, target.reservation.value(),
                                              target.epoch, renew_every, on_ended));
  const KvEncoder::Demand demand = {
      .link = stream->inner_->link(), .bytes = bytes, .quality = stream->prompt_.quality};
  stream->encoding_ = parts.encoder.Choose(target, demand);
  const auto& codec = stream->encoding_.codec;
  return Opened{.stream = stream,
                .codec = codec == nullptr ? std::string(CodecName(CodecId::kRaw)) : codec->name(),
                .expected = stream->encoding_.expected,
                .way = stream->encoding_.way,
                .demand = demand};
}

EncodedStream::EncodedStream(const Parts& parts, Prompt prompt, StreamEnded ended)
    : parts_(parts),
      prompt_(std::move(prompt)),
      end_{.report = std::move(ended), .key = {}, .status = absl::OkStatus()},
      payloads_(parts.encoder) {}

int32_t EncodedStream::TokensOf(const PostedExtent& extent) const {
  const int32_t block_tokens = parts_.encoder.layout().block_tokens;
  return std::min(block_tokens, prompt_.tokens - static_cast<int32_t>(extent.block) * block_tokens);
}

ExtentPlace EncodedStream::PlaceOf(const PostedExtent& extent) const {
  const int32_t tokens = TokensOf(extent);
  const int32_t first = static_cast<int32_t>(extent.block) * parts_.encoder.layout().block_tokens;
  return {.layer = static_cast<int32_t>(extent.layer),
          .exact_front = std::clamp(encoding_.exact_front - first, 0, tokens)};
}

bool EncodedStream::IsEncoded(const PostedExtent& extent) const {
  if (!encoding_.frames) return false;
  return encoding_.codec != nullptr || TokensOf(extent) < parts_.encoder.layout().block_tokens;
}

absl::Status EncodedStream::Post(std::span<const PostedExtent> extents) {
  {
    absl::MutexLock lock(&mutex_);
    if (is_over_) return absl::OkStatus();
  }
  std::vector<PostedExtent> encoded;
  std::vector<PostedExtent> as_they_are;
  for (const PostedExtent& extent : extents) {
    (IsEncoded(extent) ? encoded : as_they_are).push_back(extent);
  }
  if (!parts_.encoder.Reserve(BytesOf(encoded), encoded.size())) {
    as_they_are.insert(as_they_are.end(), encoded.begin(), encoded.end());
    encoded.clear();
  }
  if (encoding_.frames && parts_.encoder.takes_samples()) QueuePieces(as_they_are, true);
  absl::Status status = PostRaw(as_they_are);
  if (status.ok() && !encoded.empty()) status = PostTables();
  if (!status.ok()) {
    parts_.encoder.GiveBack(BytesOf(encoded));
    return status;
  }
  QueuePieces(encoded, false);
  return absl::OkStatus();
}

absl::Status EncodedStream::PostNow(std::span<const PostedExtent> extents) {
  if (extents.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(inner_->Post(extents));
  prompt_.posted->Add(extents);
  return absl::OkStatus();
}

absl::Status EncodedStream::PostRaw(std::span<const PostedExtent> extents) {
  RETURN_IF_ERROR(PostNow(extents));
  std::vector<ExtentParts> parts;
  for (const PostedExtent& extent : extents) {
    parts.push_back(PartsOfRawExtent(parts_.encoder.layout(), TokensOf(extent)));
  }
  prompt_.posted->AddParts(extents, parts);
  return absl::OkStatus();
}

absl::Status EncodedStream::PostTables() {
  {
    absl::MutexLock lock(&mutex_);
    if (encoding_.tables.empty() || std::exchange(sent_tables_, true)) return absl::OkStatus();
  }
  const PostedExtent tables = {.layer = static_cast<uint32_t>(parts_.encoder.layout().num_layers),
                               .payload = encoding_.tables,
                               .kind = PayloadKind::kTables};
  return PostNow({&tables, 1});
}

void EncodedStream::QueuePieces(std::span<const PostedExtent> extents, bool are_samples) {
  std::vector<Piece> pieces;
  for (const PostedExtent& extent : extents) {
    if (pieces.empty() || pieces.back().bytes >= kPieceBytes) {
      pieces.push_back({.extents = {}, .is_sample = are_samples});
    }
    pieces.back().extents.push_back(extent);
    pieces.back().bytes += std::ssize(extent.payload);
  }
  {
    absl::MutexLock lock(&mutex_);
    if (!are_samples) waiting_ += static_cast<int32_t>(pieces.size());
  }
  for (Piece& piece : pieces) {
    parts_.workers.Queue(
        [self = shared_from_this(), piece = std::move(piece)] { self->Work(piece); });
  }
}

void EncodedStream::Work(const Piece& piece) {
  {
    absl::MutexLock lock(&mutex_);
    if (is_over_) {
      if (!piece.is_sample) parts_.encoder.GiveBack(piece.bytes);
      return;
    }
    ++reading_;
  }
  absl::Status status;
  if (piece.is_sample) {
    for (const PostedExtent& extent : piece.extents) {
      parts_.encoder.Sample(static_cast<int32_t>(extent.layer), TokensOf(extent), extent.payload);
    }
  } else {
    status = EncodeAndPost(piece);
  }
  bool finish = false;
  {
    absl::MutexLock lock(&mutex_);
    --reading_;
    if (!piece.is_sample) finish = --waiting_ == 0 && finishes_ && !is_over_;
  }
  if (status.ok() && finish) status = inner_->Finish();
  if (!status.ok()) {
    {
      absl::MutexLock lock(&mutex_);
      if (failure_.ok()) failure_ = status;
      is_over_ = true;
    }
    inner_->Abort();
  }
  ReportIfOver();
}

absl::Status EncodedStream::EncodeAndPost(const Piece& piece) {
  auto buffer = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(piece.bytes));
  std::span<std::byte> left(buffer.get(), static_cast<size_t>(piece.bytes));
  std::vector<PostedExtent> payloads;
  std::vector<ExtentParts> parts;
  for (const PostedExtent& extent : piece.extents) {
    const KvEncoder::Encoded encoded =
        parts_.encoder.Encode(encoding_.codec.get(), PlaceOf(extent), TokensOf(extent),
                              extent.payload, left.first(extent.payload.size()));
    payloads.push_back(extent);
    parts.push_back(encoded.parts);
    if (!encoded.size) continue;
    payloads.back().payload = left.first(*encoded.size);
    payloads.back().kind = PayloadKind::kEncoded;
    left = left.subspan(*encoded.size);
  }
  {
    absl::MutexLock lock(&mutex_);
    payloads_.Keep(std::move(buffer), piece.bytes);
  }
  RETURN_IF_ERROR(PostNow(payloads));
  prompt_.posted->AddParts(payloads, parts);
  return absl::OkStatus();
}

absl::Status EncodedStream::Finish() {
  {
    absl::MutexLock lock(&mutex_);
    if (is_over_) return absl::OkStatus();
    finishes_ = true;
    if (waiting_ > 0) return absl::OkStatus();
  }
  return inner_->Finish();
}

void EncodedStream::Abort() {
  {
    absl::MutexLock lock(&mutex_);
    is_over_ = true;
  }
  inner_->Abort();
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &EncodedStream::nobody_reads));
}

void EncodedStream::OnEnded(StreamKey key, const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    is_over_ = true;
    end_.reached = true;
    end_.key = key;
    end_.status = status;
  }
  ReportIfOver();
}

void EncodedStream::ReportIfOver() {
  End end;
  {
    absl::MutexLock lock(&mutex_);
    if (!end_.reached || reading_ > 0 || end_.report == nullptr) return;
    end = std::move(end_);
    end_ = {.report = nullptr, .reached = true, .key = {}, .status = absl::OkStatus()};
    if (!failure_.ok()) end.status = failure_;
  }
  end.report(end.key.stream, end.key.epoch, end.status);
}

}  // namespace tandem
