#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "model/tokenizer/tokenizer.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// Turns a text into token ids, on a thread of the pool.
struct TokenizeWork {
  using Encode = std::function<absl::StatusOr<std::vector<int32_t>>(const Tokenizer&)>;

  TokenizeWork(size_t text_bytes, Encode encode)
      : text_bytes(text_bytes), encode(std::move(encode)) {}
  TokenizeWork(std::string text, EncodeOptions options);
  // Tokenizes the text of a request by the options of the request.
  explicit TokenizeWork(v1::TokenizeRequest request);

  size_t text_bytes;  // long and short texts wait in queues of their own
  Encode encode;
};

struct TokenizePoolOptions {
  // The number of threads. With two or more, one of them takes short texts only. With none,
  // Tokenize does the work itself, for tests that own the time.
  int threads = 2;
  size_t short_text_bytes = 16 << 10;     // longer texts wait in a queue of their own
  size_t max_long_text_bytes = 32 << 20;  // of all long texts, waiting or being tokenized
  size_t max_short_texts = 1024;          // waiting or being tokenized
};

// Tokenizes texts on its own threads, so that the threads of gRPC, which also take the workers'
// heartbeats, never wait for a tokenizer: megabytes of text take seconds. The memory of waiting
// texts is bounded, and long texts neither delay short ones nor cause their refusal.
// Thread-safe.
class TokenizePool {
 public:
  // The right to hand in one text of a certain size. The pool must outlive it.
  class Admission {
   public:
    Admission(Admission&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)), bytes_(other.bytes_) {}
    Admission& operator=(Admission&&) = delete;
    ~Admission() {
      if (pool_ != nullptr) pool_->Leave(bytes_);
    }

   private:
    friend class TokenizePool;
    Admission(TokenizePool* pool, size_t bytes) : pool_(pool), bytes_(bytes) {}

    TokenizePool* pool_;
    size_t bytes_;
  };

  struct Job {
    Admission admission;
    TokenizeWork work;
    std::function<bool()> unwanted;  // asked just before the work; if true, the work is not done
    // Called once, on a thread of the pool; CANCELLED where the text was unwanted.
    std::function<void(absl::StatusOr<std::vector<int32_t>>)> done;
  };

  // `tokenizer` outlives the pool; if it is null, no texts may be handed in.
  TokenizePool(const Tokenizer* tokenizer, TokenizePoolOptions options);
  // Closes the pool, and waits for the texts that are being tokenized.
  ~TokenizePool();
  TokenizePool(const TokenizePool&) = delete;
  TokenizePool& operator=(const TokenizePool&) = delete;

  // Admits a text of this size. RESOURCE_EXHAUSTED with a retry-after when too much text waits
  // already.
  absl::StatusOr<Admission> Admit(size_t text_bytes);
  void Tokenize(Job job);

  // Answers the waiting jobs with UNAVAILABLE, from within this call, and every later one, too. The
  // texts that are being tokenized are finished.
  void Close();

  v1::TokenizeUse Use() const;

 private:
  enum class Takes : uint8_t { kShortTexts, kAllTexts };
  struct Numbered {
    uint64_t number;
    Job job;
  };

  bool IsShort(size_t text_bytes) const { return text_bytes <= options_.short_text_bytes; }
  void Leave(size_t text_bytes);
  void Run(Takes takes);
  void Answer(Job job);
  bool HasJob(Takes takes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Job TakeJob(Takes takes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Tokenizer* const tokenizer_;
  const TokenizePoolOptions options_;
  mutable absl::Mutex mutex_;
  std::deque<Numbered> short_ ABSL_GUARDED_BY(mutex_);
  std::deque<Numbered> long_ ABSL_GUARDED_BY(mutex_);
  uint64_t handed_in_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  size_t long_text_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  v1::TokenizeUse use_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace tandem
