#pragma once

#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "security/tls_source.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace tandem {

// The SSL_CTX that new connections are made of, which follows its files. Thread-safe.
class ReloadingContext {
 public:
  // Sets what is not in the files: versions, whether peers must show a certificate.
  using SetRules = std::function<void(ssl_ctx_st*)>;

  // INVALID_ARGUMENT names the file and OpenSSL's reason.
  static absl::StatusOr<std::unique_ptr<ReloadingContext>> Open(
      const TlsFiles& files, SetRules set_rules, Duration recheck = TlsSource::kRecheck);

  // The context for the files as they are now. A connection keeps its own reference.
  std::shared_ptr<ssl_ctx_st> Current();

 private:
  ReloadingContext(std::shared_ptr<TlsSource> source, SetRules set_rules,
                   std::shared_ptr<const TlsMaterial> material,
                   std::shared_ptr<ssl_ctx_st> context);

  const std::shared_ptr<TlsSource> source_;
  const SetRules set_rules_;
  absl::Mutex mutex_;
  std::shared_ptr<const TlsMaterial> material_ ABSL_GUARDED_BY(mutex_);  // that was tried last
  std::shared_ptr<ssl_ctx_st> context_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
