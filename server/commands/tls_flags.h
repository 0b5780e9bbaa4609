#pragma once

#include <string>

#include "security/tls_files.h"

namespace CLI {
class App;
}

namespace tandem {

// The files that secure the ports of a process: of `tandem router`, `tandem worker` and `tandem
// up`.
void AddPortTlsFlags(CLI::App& app, TlsFiles& files);
// Whether clients of a router need a certificate: "optional" or "require".
void AddTlsClientsFlag(CLI::App& app, std::string& clients);
// Adds the flags for the TLS files of a command that is a client of a router.
void AddClientTlsFlags(CLI::App& app, TlsFiles& files);

}  // namespace tandem
