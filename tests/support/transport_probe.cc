#include "tests/support/transport_probe.h"

#include <algorithm>

#include "base/check.h"
#include "base/rng.h"
#include "base/status.h"
#include "gtest/gtest.h"

namespace tandem {

std::vector<std::byte> PatternBytes(size_t size, uint64_t seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; i += 16) {
    const auto words = Philox4x32(seed, i, 0);
    const auto word_bytes = std::as_bytes(std::span(words));
    std::copy_n(word_bytes.begin(), std::min<size_t>(16, size - i), bytes.begin() + i);
  }
  return bytes;
}

absl::Status StreamBook::Open(Transport& transport, std::string_view peer, uint64_t stream,
                              uint64_t epoch, Duration renew_every, StreamEnded ended) {
  ASSIGN_OR_RETURN(StreamHandle handle,
                   transport.OpenStream(peer, stream, epoch, renew_every, std::move(ended)));
  absl::MutexLock lock(&mutex_);
  handles_[{&transport, {.stream = stream, .epoch = epoch}}] = std::move(handle);
  return absl::OkStatus();
}

StreamHandle StreamBook::Find(const Transport& transport, StreamKey key) const {
  absl::MutexLock lock(&mutex_);
  const auto place = handles_.find({&transport, key});
  TANDEM_CHECK(place != handles_.end(), "a test names a stream that it has not opened");
  return place->second;
}

absl::StatusOr<std::span<std::byte>> ReceiverProbe::Prepare(const FrameHeader& header) {
  const absl::Status status = prepare_policy ? prepare_policy(header) : absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  calls_.push_back({Call::Kind::kPrepare, header, status});
  if (!status.ok()) return status;
  whole_.erase({header.stream, header.layer, header.block});
  auto& place = landed_[{header.stream, header.layer, header.block}];
  if (place.size() != header.payload_bytes) {
    place = memory_.New(header.payload_bytes);
  } else {
    memory_.Write(place, std::vector<std::byte>(place.size()));
  }
  return place;
}

void ReceiverProbe::Landed(const FrameHeader& header, const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  calls_.push_back({Call::Kind::kLanded, header, status});
  if (status.ok()) whole_.insert({header.stream, header.layer, header.block});
}

CommitAnswer ReceiverProbe::Commit(const FrameHeader& header) {
  CommitAnswer answer = commit_policy ? commit_policy(header) : DefaultCommit(header);
  absl::MutexLock lock(&mutex_);
  calls_.push_back({Call::Kind::kCommit, header, answer.status});
  return answer;
}

absl::Status ReceiverProbe::Renewed(uint64_t stream, uint64_t epoch) {
  const absl::Status status = renewed_policy ? renewed_policy(stream) : absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  calls_.push_back({Call::Kind::kRenewed, {.stream = stream, .epoch = epoch}, status});
  return status;
}

CommitAnswer ReceiverProbe::DefaultCommit(const FrameHeader& header) const {
  absl::MutexLock lock(&mutex_);
  const auto landed =
      static_cast<uint64_t>(std::count_if(whole_.begin(), whole_.end(), [&](const Place& place) {
        return std::get<0>(place) == header.stream;
      }));
  CommitAnswer answer;
  if (landed == header.frames) return answer;
  for (uint32_t block = 0; block < header.frames; ++block) {
    if (!whole_.contains({header.stream, 0, block})) answer.missing.push_back({0, block});
  }
  if (landed + answer.missing.size() == header.frames) return answer;
  return {.status = DataLoss("{} frames landed, the commit says {}", landed, header.frames)};
}

std::vector<ReceiverProbe::Call> ReceiverProbe::calls() const {
  absl::MutexLock lock(&mutex_);
  return calls_;
}

std::vector<ReceiverProbe::Call> ReceiverProbe::CallsOf(uint64_t stream) const {
  std::vector<Call> of_stream = calls();
  std::erase_if(of_stream, [&](const Call& call) { return call.header.stream != stream; });
  return of_stream;
}

int ReceiverProbe::Count(uint64_t stream, Call::Kind kind) const {
  absl::MutexLock lock(&mutex_);
  return CountLocked(stream, kind);
}

int ReceiverProbe::CountLocked(uint64_t stream, Call::Kind kind) const {
  return static_cast<int>(std::count_if(calls_.begin(), calls_.end(), [&](const Call& call) {
    return call.header.stream == stream && call.kind == kind;
  }));
}

std::vector<std::byte> ReceiverProbe::BytesOf(uint64_t stream, uint32_t layer,
                                              uint32_t block) const {
  absl::MutexLock lock(&mutex_);
  const auto place = landed_.find({stream, layer, block});
  return place == landed_.end() ? std::vector<std::byte>() : memory_.Read(place->second);
}

bool ReceiverProbe::WaitFor(uint64_t stream, Call::Kind kind, int count) const {
  absl::MutexLock lock(&mutex_);
  auto reached = [&] {
    mutex_.AssertReaderHeld();
    return CountLocked(stream, kind) >= count;
  };
  return mutex_.AwaitWithTimeout(absl::Condition(&reached), kPatience);
}

StreamEnded EndProbe::Callback() {
  return [this](uint64_t stream, uint64_t, const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    ends_[stream].push_back(status);
  };
}

absl::Status EndProbe::Wait(uint64_t stream) const {
  absl::MutexLock lock(&mutex_);
  auto ended = [&] {
    mutex_.AssertReaderHeld();
    return ends_.contains(stream);
  };
  if (!mutex_.AwaitWithTimeout(absl::Condition(&ended), kPatience)) {
    ADD_FAILURE() << "stream " << stream << " did not end";
    return absl::UnknownError("did not end");
  }
  return ends_.at(stream).front();
}

int EndProbe::count(uint64_t stream) const {
  absl::MutexLock lock(&mutex_);
  const auto place = ends_.find(stream);
  return place == ends_.end() ? 0 : static_cast<int>(place->second.size());
}

int EndProbe::total() const {
  absl::MutexLock lock(&mutex_);
  int total = 0;
  for (const auto& [stream, ends] : ends_) total += static_cast<int>(ends.size());
  return total;
}

}  // namespace tandem
