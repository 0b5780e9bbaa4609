#include "server/commands/columns.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace tandem {

int ColumnsOfOutput() {
  constexpr int kUsual = 100;
  constexpr int kMost = 200;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return std::min<int>(size.ws_col, kMost);
}

}  // namespace tandem
