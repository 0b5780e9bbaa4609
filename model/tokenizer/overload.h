#pragma once

namespace tandem {

// A visitor made of lambdas, one per alternative of a std::variant.
template <typename... Visitors>
struct Overload : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overload(Visitors...) -> Overload<Visitors...>;

}  // namespace tandem
