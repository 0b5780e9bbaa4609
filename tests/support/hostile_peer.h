#pragma once

#include <openssl/ssl.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "security/openssl_parts.h"
#include "security/tls_files.h"

namespace tandem {

// One connection to a port of loopback that sends whatever a test wants, in the clear or over TLS.
// Every wait for the other side ends after a minute.
class HostilePeer {
 public:
  // Connects in the clear. `source`: the last number of the address 127.0.0.x that it connects
  // from, so that a test can have more connections to a port than one address has ports.
  explicit HostilePeer(uint16_t port, int source = 1);
  // Connects and shakes hands: with the certificate of `files`, if there is one, as a client of
  // HTTP/2 where `protocol` is "h2". Whoever answers is trusted.
  HostilePeer(uint16_t port, const TlsFiles& files, std::string_view protocol = "");

  // False when there is no connection, or the other side has ended it.
  bool Send(std::string_view bytes);
  // What comes until the other side ends the connection.
  std::string ReceiveAll();
  // What comes until `done` holds for all of it; shorter when the connection ends before.
  std::string ReceiveUntil(const std::function<bool(std::string_view)>& done);
  // Whether the other side has ended it. Does not wait; throws away what came.
  bool HasEnded();
  // Ends it at once; the other side loses what it has not read.
  void Reset();

 private:
  bool Fill();

  UniqueFd socket_;
  std::unique_ptr<SSL_CTX, OpensslFree<&SSL_CTX_free>> context_;
  std::unique_ptr<SSL, OpensslFree<&SSL_free>> ssl_;  // null: in the clear
  std::string received_;
};

// The first bytes of a handshake of TLS. Who sends them and nothing more leaves the server in the
// middle of it.
std::string TlsClientHello();

}  // namespace tandem
