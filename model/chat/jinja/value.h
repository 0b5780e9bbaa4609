#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/chat/jinja/text.h"

namespace tandem::jinja {

class Value;
class Dict;
class Loop;
struct Callable;
struct List;
struct Namespace;

struct None {};

// Why a value is undefined: the errors of its uses say this.
struct Undefined {
  std::string reason;
  bool forbidden = false;  // an attribute that the sandbox forbids
};

// A value of a template, cheap to copy. Strings, lists and dicts never change once they are made;
// namespaces and loops do. Thread: one at a time.
class Value {
 public:
  using Data = std::variant<None, std::shared_ptr<const Undefined>, bool, int64_t, double,
                            std::shared_ptr<const Text>, std::shared_ptr<const List>,
                            std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
                            std::shared_ptr<const Callable>, std::shared_ptr<Loop>>;

  Value() = default;  // the value none
  explicit Value(bool value) : data_(value) {}
  explicit Value(int64_t value) : data_(value) {}
  explicit Value(double value) : data_(value) {}
  explicit Value(Text text) : data_(std::make_shared<const Text>(std::move(text))) {}
  explicit Value(std::shared_ptr<const List> list) : data_(std::move(list)) {}
  explicit Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}
  explicit Value(std::shared_ptr<Namespace> value) : data_(std::move(value)) {}
  explicit Value(std::shared_ptr<const Callable> value) : data_(std::move(value)) {}
  explicit Value(std::shared_ptr<Loop> value) : data_(std::move(value)) {}
  static Value String(std::string_view text) { return Value(Text(std::string(text))); }
  static Value MakeUndefined(std::string reason, bool forbidden = false) {
    return Value(Data(std::make_shared<const Undefined>(Undefined{std::move(reason), forbidden})));
  }

  bool is_none() const { return std::holds_alternative<None>(data_); }
  const Undefined* undefined() const { return Pointee<const Undefined>(); }
  const bool* boolean() const { return std::get_if<bool>(&data_); }
  const double* real() const { return std::get_if<double>(&data_); }
  // The value of an integer; true and false count as integers as well.
  std::optional<int64_t> integer() const;
  // The value of a number, as the nearest float.
  std::optional<double> number() const;
  const Text* text() const { return Pointee<const Text>(); }
  const List* list() const { return Pointee<const List>(); }
  const Dict* dict() const { return Pointee<const Dict>(); }
  Namespace* name_space() const { return Pointee<Namespace>(); }
  const Callable* callable() const { return Pointee<const Callable>(); }
  Loop* loop() const { return Pointee<Loop>(); }

  // The type by Python's name for it, such as "str".
  std::string_view type() const;
  // How deep containers are nested in the value. The depth is bounded, and so is recursion over
  // values.
  int depth() const;
  // Whether two values are the very same (Python's `is`).
  bool SameAs(const Value& other) const;

 private:
  explicit Value(Data data) : data_(std::move(data)) {}
  template <typename T>
  T* Pointee() const {
    const auto* pointer = std::get_if<std::shared_ptr<T>>(&data_);
    return pointer == nullptr ? nullptr : pointer->get();
  }

  Data data_;
};

inline constexpr int kMaxValueDepth = 200;

// A list, or whatever else of Python is a row of values.
struct List {
  enum class Kind : uint8_t { kList, kTuple, kRange, kKeys, kValues, kItems, kGenerator };

  Kind kind = Kind::kList;
  std::vector<Value> items;
  int depth = 1;
  std::array<int64_t, 3> range = {};  // start, stop, step
  mutable bool spent = false;         // a generator gives its items once
};

// Makes a list of `items`. INVALID_ARGUMENT when values are nested too deeply.
absl::StatusOr<Value> MakeList(std::vector<Value> items, List::Kind kind = List::Kind::kList);

// Keys and values in the order of insertion.
class Dict {
 public:
  struct Entry {
    Value key;
    Value value;
  };

  // Adds an entry, or replaces the value of an equal key. INVALID_ARGUMENT for a key that has no
  // hash in Python or is a tuple, and when values are nested too deeply.
  absl::Status Set(Value key, Value value);
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  const std::vector<Entry>& entries() const { return entries_; }
  int depth() const { return depth_; }

 private:
  struct Key {
    enum class Kind : uint8_t { kText, kInteger, kReal, kNone } kind;
    std::string_view text;
    int64_t integer = 0;
    double real = 0;

    bool operator==(const Key&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& key) {
      const absl::string_view text(key.text.data(), key.text.size());
      return H::combine(std::move(h), key.kind, text, key.integer, key.real);
    }
  };
  static std::optional<Key> KeyOf(const Value& key);
  const Value* FindKey(const Key& key) const;

  std::vector<Entry> entries_;
  absl::flat_hash_map<Key, size_t> index_;  // views into the texts of entries_
  int depth_ = 1;
};

// Attributes that a template sets: {% set ns.found = true %}.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;

  const Value* Find(std::string_view name) const;
  void Set(std::string_view name, Value value);
};

struct Arguments {
  std::vector<Value> positional;
  // Named arguments. The names are texts because those of a ** may come from the input.
  std::vector<std::pair<Text, Value>> named;
};

class Machine;  // machine.h

struct Callable {
  std::string name;
  std::function<absl::StatusOr<Value>(Machine&, Arguments)> call;
  int depth = 1;
};

}  // namespace tandem::jinja
