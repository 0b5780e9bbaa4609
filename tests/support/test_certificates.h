#pragma once

#include <string>
#include <string_view>

#include "transfer/media/tcp/tcp_medium.h"

namespace tandem {

// A certificate authority made for one test, and certificates that it signs, as PEM files in a
// directory of the test. No key is kept in the tree.
class TestAuthority {
 public:
  // Writes `directory`/`name`.ca.pem. Fails the test when OpenSSL cannot.
  TestAuthority(std::string directory, std::string name);
  ~TestAuthority();
  TestAuthority(const TestAuthority&) = delete;
  TestAuthority& operator=(const TestAuthority&) = delete;

  enum class Validity : uint8_t { kNow, kExpired };
  // A new key and a certificate of this authority for it. The files trust this authority.
  // `addresses`: what clients may have called its owner, as "IP:127.0.0.1,DNS:localhost".
  TlsFiles Issue(std::string_view worker, Validity validity = Validity::kNow,
                 const std::string& addresses = "") const;

  const std::string& ca_file() const { return ca_file_; }

 private:
  struct Keys;
  const std::string directory_;
  const std::string name_;
  const std::string ca_file_;
  Keys* const keys_;
};

}  // namespace tandem
