#include "router/request/tokenize_pool.h"

#include <chrono>

#include "base/retry_after.h"
#include "base/status.h"
#include "base/thread_name.h"

namespace tandem {
namespace {

absl::Status Closed() { return Unavailable("the router is shutting down: retry elsewhere"); }

}  // namespace

TokenizeWork::TokenizeWork(std::string text, EncodeOptions options)
    : text_bytes(text.size()),
      encode([text = std::move(text), options](const Tokenizer& tokenizer) {
        return tokenizer.Encode(text, options);
      }) {}

TokenizeWork::TokenizeWork(v1::TokenizeRequest request)
    : TokenizeWork(std::move(*request.mutable_text()),
                   {.add_template = request.omit_template() ? Template::kOmit : Template::kAdd}) {}

TokenizePool::TokenizePool(const Tokenizer* tokenizer, TokenizePoolOptions options)
    : tokenizer_(tokenizer), options_(options) {
  if (tokenizer_ == nullptr) return;
  for (int i = 0; i < options_.threads; ++i) {
    const Takes takes = i == 0 && options_.threads > 1 ? Takes::kShortTexts : Takes::kAllTexts;
    threads_.emplace_back([this, takes] {
      NameThisThread("tokenize");
      Run(takes);
    });
  }
}

TokenizePool::~TokenizePool() {
  Close();
  for (std::thread& thread : threads_) thread.join();
}

void TokenizePool::Close() {
  std::deque<Numbered> left;
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    left.swap(short_);
    for (Numbered& one : long_) left.push_back(std::move(one));
    long_.clear();
  }
  for (Numbered& one : left) one.job.done(Closed());
}

absl::StatusOr<TokenizePool::Admission> TokenizePool::Admit(size_t text_bytes) {
  absl::MutexLock lock(&mutex_);
  const bool is_short = IsShort(text_bytes);
  const auto short_texts = static_cast<size_t>(use_.short_texts());
  const bool fits = is_short ? short_texts < options_.max_short_texts
                             : long_text_bytes_ + text_bytes <= options_.max_long_text_bytes;
  if (!fits) {
    use_.set_refused(use_.refused() + 1);
    absl::Status status =
        is_short
            ? ResourceExhausted("{} texts wait to be tokenized already: retry later",
                                options_.max_short_texts)
            : ResourceExhausted(
                  "a text of {} bytes would exceed the {} bytes of long texts that may wait to "
                  "be tokenized: retry later",
                  text_bytes, options_.max_long_text_bytes);
    SetRetryAfter(status, std::chrono::milliseconds(500));
    return status;
  }
  if (is_short) {
    use_.set_short_texts(use_.short_texts() + 1);
  } else {
    use_.set_long_texts(use_.long_texts() + 1);
    long_text_bytes_ += text_bytes;
  }
  return Admission(this, text_bytes);
}

void TokenizePool::Leave(size_t text_bytes) {
  absl::MutexLock lock(&mutex_);
  if (IsShort(text_bytes)) {
    use_.set_short_texts(use_.short_texts() - 1);
  } else {
    use_.set_long_texts(use_.long_texts() - 1);
    long_text_bytes_ -= text_bytes;
  }
}

void TokenizePool::Tokenize(Job job) {
  bool closed = false;
  {
    absl::MutexLock lock(&mutex_);
    closed = closed_;
    if (!closed && !threads_.empty()) {
      std::deque<Numbered>& queue = IsShort(job.work.text_bytes) ? short_ : long_;
      queue.push_back({handed_in_++, std::move(job)});
      return;
    }
  }
  if (closed) return job.done(Closed());
  Answer(std::move(job));
}

bool TokenizePool::HasJob(Takes takes) const {
  return !short_.empty() || (takes == Takes::kAllTexts && !long_.empty());
}

// Returns the oldest job that the thread may take.
TokenizePool::Job TokenizePool::TakeJob(Takes takes) {
  const bool takes_long = takes == Takes::kAllTexts && !long_.empty() &&
                          (short_.empty() || long_.front().number < short_.front().number);
  std::deque<Numbered>& queue = takes_long ? long_ : short_;
  Job job = std::move(queue.front().job);
  queue.pop_front();
  return job;
}

void TokenizePool::Run(Takes takes) {
  const auto woken = [this, takes] {
    mutex_.AssertHeld();
    return closed_ || HasJob(takes);
  };
  while (true) {
    mutex_.LockWhen(absl::Condition(&woken));
    if (closed_) {
      mutex_.Unlock();
      return;
    }
    Job job = TakeJob(takes);
    mutex_.Unlock();
    Answer(std::move(job));
  }
}

void TokenizePool::Answer(Job job) {
  if (job.unwanted && job.unwanted()) {
    job.done(Cancelled("the text is not wanted any more"));
    return;
  }
  absl::StatusOr<std::vector<int32_t>> ids = job.work.encode(*tokenizer_);
  {
    absl::MutexLock lock(&mutex_);
    use_.set_texts_total(use_.texts_total() + 1);
  }
  job.done(std::move(ids));
}

v1::TokenizeUse TokenizePool::Use() const {
  absl::MutexLock lock(&mutex_);
  v1::TokenizeUse use = use_;
  use.set_long_text_bytes(long_text_bytes_);
  return use;
}

}  // namespace tandem
