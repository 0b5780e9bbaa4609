#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "tests/support/call_site.h"
#include "tests/support/wait_limit.h"
#include "transfer/transport.h"

namespace tandem {

// One data frame as it was posted, its payload copied.
struct RecordedFrame {
  uint64_t stream = 0;
  uint64_t epoch = 0;
  uint32_t layer = 0;
  uint32_t block = 0;
  std::vector<std::byte> payload;
  PayloadKind kind = PayloadKind::kExtent;
};

// A transport without a peer: keeps what is posted, and the test says how streams end.
// Thread-safe.
class ScriptedTransport final : public Transport {
 public:
  // What the next calls answer.
  void FailOpen(absl::Status status) {
    absl::MutexLock lock(&mutex_);
    open_answer_ = std::move(status);
  }
  void FailPost(absl::Status status) {
    absl::MutexLock lock(&mutex_);
    post_answer_ = std::move(status);
  }

  void FailReach(absl::Status status) {
    absl::MutexLock lock(&mutex_);
    reach_answer_ = std::move(status);
  }

  void AwaitCommit(uint64_t stream, CallSite line = CallSite::Current()) {
    absl::MutexLock lock(&mutex_);
    auto committed = [this, stream] {
      mutex_.AssertReaderHeld();
      const auto place = streams_.find(stream);
      return place != streams_.end() && place->second.committed;
    };
    AwaitWithin(mutex_, absl::Condition(&committed), "the commit of a stream", line);
  }

  // As the peer, or the loss of it, would.
  void End(uint64_t stream, const absl::Status& status) {
    Stream ended;
    {
      absl::MutexLock lock(&mutex_);
      const auto place = streams_.find(stream);
      if (place == streams_.end()) return;
      ended = std::move(place->second);
      streams_.erase(place);
    }
    ended.ended(stream, ended.epoch, status);
  }

  // Waits until streams were opened so many times, in all.
  void AwaitOpened(int times, CallSite line = CallSite::Current()) {
    absl::MutexLock lock(&mutex_);
    auto opened = [this, times] {
      mutex_.AssertReaderHeld();
      return num_opened_ >= times;
    };
    AwaitWithin(mutex_, absl::Condition(&opened), "the opening of a stream", line);
  }
  int num_opened() const {
    absl::MutexLock lock(&mutex_);
    return num_opened_;
  }
  // Of the latest stream that was opened.
  Duration renew_every() const {
    absl::MutexLock lock(&mutex_);
    return renew_every_;
  }
  // The link that streams say they take, from the next opening on.
  void SetLink(const SendLink& link) {
    absl::MutexLock lock(&mutex_);
    link_ = link;
  }
  // Called with the first layer of each post. Before the first.
  void OnPost(std::function<void(uint32_t layer)> on_post) { on_post_ = std::move(on_post); }

  std::vector<RecordedFrame> frames() const {
    absl::MutexLock lock(&mutex_);
    return frames_;
  }
  int num_aborted() const {
    absl::MutexLock lock(&mutex_);
    return num_aborted_;
  }

  std::string address() const override { return "scripted:1"; }

  absl::Status MayReach(std::string_view) const override {
    absl::MutexLock lock(&mutex_);
    return reach_answer_;
  }

  absl::StatusOr<StreamHandle> OpenStream(std::string_view, uint64_t stream, uint64_t epoch,
                                          Duration renew_every, StreamEnded ended) override {
    absl::MutexLock lock(&mutex_);
    if (!open_answer_.ok()) return open_answer_;
    ++num_opened_;
    renew_every_ = renew_every;
    streams_[stream] = {.epoch = epoch, .ended = std::move(ended)};
    return std::make_shared<ScriptedStream>(*this, stream, epoch, link_);
  }

  std::vector<LinkStats> links() const override { return {}; }
  TransportStats stats() const override { return {}; }

 private:
  struct Stream {
    uint64_t epoch = 0;
    StreamEnded ended;
    bool committed = false;
  };

  class ScriptedStream final : public SendStream {
   public:
    ScriptedStream(ScriptedTransport& transport, uint64_t stream, uint64_t epoch,
                   const SendLink& link)
        : transport_(transport), stream_(stream), epoch_(epoch), link_(link) {}
    SendLink link() const override { return link_; }
    absl::Status Post(std::span<const PostedExtent> extents) override {
      return transport_.Post(stream_, epoch_, extents);
    }
    absl::Status Finish() override {
      transport_.Finish(stream_);
      return absl::OkStatus();
    }
    void Abort() override { transport_.Abort(stream_); }

   private:
    ScriptedTransport& transport_;
    const uint64_t stream_;
    const uint64_t epoch_;
    const SendLink link_;
  };

  absl::Status Post(uint64_t stream, uint64_t epoch, std::span<const PostedExtent> extents) {
    if (on_post_ && !extents.empty()) on_post_(extents.front().layer);
    absl::MutexLock lock(&mutex_);
    if (!post_answer_.ok()) return post_answer_;
    for (const auto& [layer, block, payload, kind] : extents) {
      frames_.push_back({stream, epoch, layer, block, {payload.begin(), payload.end()}, kind});
    }
    return absl::OkStatus();
  }
  void Finish(uint64_t stream) {
    absl::MutexLock lock(&mutex_);
    if (const auto place = streams_.find(stream); place != streams_.end()) {
      place->second.committed = true;
    }
  }
  void Abort(uint64_t stream) {
    {
      absl::MutexLock lock(&mutex_);
      if (streams_.contains(stream)) ++num_aborted_;
    }
    End(stream, absl::CancelledError("aborted"));
  }

  std::function<void(uint32_t layer)> on_post_;

  mutable absl::Mutex mutex_;
  std::map<uint64_t, Stream> streams_ ABSL_GUARDED_BY(mutex_);
  std::vector<RecordedFrame> frames_ ABSL_GUARDED_BY(mutex_);
  absl::Status reach_answer_ ABSL_GUARDED_BY(mutex_);
  absl::Status open_answer_ ABSL_GUARDED_BY(mutex_);
  absl::Status post_answer_ ABSL_GUARDED_BY(mutex_);
  SendLink link_ ABSL_GUARDED_BY(mutex_);
  int num_aborted_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_opened_ ABSL_GUARDED_BY(mutex_) = 0;
  Duration renew_every_ ABSL_GUARDED_BY(mutex_){};
};

}  // namespace tandem
