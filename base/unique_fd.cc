#include "base/unique_fd.h"

#include <unistd.h>

#include <system_error>

namespace tandem {

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) close(fd_);
}

std::string ErrnoMessage(int error) { return std::generic_category().message(error); }

}  // namespace tandem
