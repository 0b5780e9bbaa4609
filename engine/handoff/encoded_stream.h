#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "engine/handoff/codec_workers.h"
#include "engine/handoff/kv_encoder.h"
#include "engine/handoff/posted_kv.h"
#include "engine/request.h"
#include "transfer/transport.h"

namespace tandem {

// The memory for encoded payloads, which counts against the encoder's memory limit until this is
// destroyed. Thread-compatible.
class EncodedPayloads {
 public:
  explicit EncodedPayloads(KvEncoder& encoder) : encoder_(encoder) {}
  ~EncodedPayloads() { encoder_.GiveBack(reserved_bytes_); }
  EncodedPayloads(const EncodedPayloads&) = delete;
  EncodedPayloads& operator=(const EncodedPayloads&) = delete;

  // Takes over `buffer`, for which `reserved_bytes` were reserved with KvEncoder::Reserve.
  void Keep(std::unique_ptr<std::byte[]> buffer, int64_t reserved_bytes) {
    buffers_.push_back(std::move(buffer));
    reserved_bytes_ += reserved_bytes;
  }

 private:
  KvEncoder& encoder_;
  std::vector<std::unique_ptr<std::byte[]>> buffers_;
  int64_t reserved_bytes_ = 0;
};

// A stream of KV that is encoded before it is sent. Extents that are posted are encoded by the
// codec workers, in pieces, and each piece goes to the transport's stream when it is ready; the
// commit follows the last piece. Encoded payloads are in memory of this object until the stream has
// ended.
// Some extents are sent as they are: those of a link that sends from the pool alone, those that a
// codec makes no smaller, and those for which the encoder has no memory left.
//
// The workers read the posted extents. So, as with any stream, these must stay valid until the
// stream has ended or Abort has returned: the end is reported when no worker reads any more.
// Thread-safe.
class EncodedStream final : public SendStream, public std::enable_shared_from_this<EncodedStream> {
 public:
  // What a stream works with. Every part must outlive the stream.
  struct Parts {
    KvEncoder& encoder;
    CodecWorkers& workers;
    Transport& transport;
  };
  // The prompt whose KV is sent; `posted` counts what was posted for it.
  struct Prompt {
    int32_t tokens = 0;
    KvQuality quality = KvQuality::kExact;
    std::shared_ptr<PostedKv> posted;
  };

  struct Opened {
    StreamHandle stream;
    std::string codec;     // KvCodec::name
    ModelTime expected{};  // StreamEncoding::expected
    size_t way = 0;        // StreamEncoding::way
    KvEncoder::Demand demand;
  };
  // Opens a stream to `target`. `ended` may be called by a worker, too. Errors as
  // Transport::OpenStream.
  static absl::StatusOr<Opened> Open(const Parts& parts, const HandoffTarget& target, Prompt prompt,
                                     Duration renew_every, StreamEnded ended);

  EncodedStream(const Parts& parts, Prompt prompt, StreamEnded ended);

  SendLink link() const override { return inner_->link(); }
  // As SendStream::Post. The extents have the encoder's layout, and `block` counts the blocks of
  // the prompt.
  absl::Status Post(std::span<const PostedExtent> extents) override;
  absl::Status Finish() override;
  void Abort() override;

 private:
  // Extents that one worker encodes.
  struct Piece {
    std::vector<PostedExtent> extents;
    int64_t bytes = 0;  // size of the extents; reserved from the encoder's limit unless is_sample
    bool is_sample = false;  // the extents were sent as they are and only feed KvEncoder::Sample
  };
  // How the transport's stream ended.
  struct End {
    StreamEnded report;  // null once it has been called
    bool reached = false;
    StreamKey key;
    absl::Status status;
  };

  absl::Status PostNow(std::span<const PostedExtent> extents);
  absl::Status PostRaw(std::span<const PostedExtent> extents);
  absl::Status PostTables();
  void QueuePieces(std::span<const PostedExtent> extents, bool are_samples);
  ExtentPlace PlaceOf(const PostedExtent& extent) const;
  int32_t TokensOf(const PostedExtent& extent) const;
  bool IsEncoded(const PostedExtent& extent) const;
  void Work(const Piece& piece);
  absl::Status EncodeAndPost(const Piece& piece);
  void OnEnded(StreamKey key, const absl::Status& status);
  // Calls End::report where the stream has ended and no worker reads its extents.
  void ReportIfOver();
  bool nobody_reads() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return reading_ == 0; }

  const Parts parts_;
  const Prompt prompt_;
  // Set when the stream is opened, constant afterwards.
  StreamHandle inner_;
  StreamEncoding encoding_;

  absl::Mutex mutex_;
  End end_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // the first error of a call on a worker thread
  bool is_over_ ABSL_GUARDED_BY(mutex_) =
      false;  // ended, aborted or failed: no worker begins to read
  bool finishes_ ABSL_GUARDED_BY(mutex_) = false;  // Finish was called
  bool sent_tables_ ABSL_GUARDED_BY(mutex_) = false;
  int32_t waiting_ ABSL_GUARDED_BY(mutex_) =
      0;  // pieces that were queued to be encoded and are not posted yet
  int32_t reading_ ABSL_GUARDED_BY(mutex_) = 0;  // pieces that workers are reading now
  EncodedPayloads payloads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
