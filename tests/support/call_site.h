#pragma once

namespace tandem {

// The place in the source from which a function was called, when the function takes it as an
// argument with Current() as the default. std::source_location would do, but Debian 12's clang
// lacks the builtin that it needs.
struct CallSite {
  const char* file;
  unsigned line;

  static constexpr CallSite Current(const char* file = __builtin_FILE(),
                                    unsigned line = __builtin_LINE()) {
    return {file, line};
  }
};

}  // namespace tandem
