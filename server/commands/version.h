#pragma once

namespace tandem {

inline constexpr char kVersion[] = TANDEM_VERSION;

}  // namespace tandem
