#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "model/answer/answer_markup.h"
#include "model/answer/json_scanner.h"
#include "model/answer/string_parameters.h"

namespace tandem {

// Reads one call between its marks (CallMarkup) as its text comes.
class CallParser {
 public:
  enum class Result { kMore, kDone, kFailed };

  // `markup` and `strings` must outlive the parser.
  CallParser(const CallMarkup& markup, const StringParameters& strings);

  // Reads on from text[at] and moves `at` after what was read: for kFailed, to where it went wrong.
  // The text from `at` on must be there again in the next call, with more behind it.
  Result Read(std::string_view text, size_t& at);

  // Whether the text is certain to be a call: its name is known and its arguments have begun.
  bool certain() const { return !name_.empty() && has_arguments_; }
  const std::string& name() const { return name_; }
  // The number that some models write behind the name, as in "get_weather:0"; else empty.
  const std::string& number() const { return number_; }
  // The JSON text of the arguments that was read since the last call of this function.
  std::string TakeArguments();

 private:
  // What the parser expects next.
  enum class Step {
    kBrace,      // kJson: the object of the call
    kField,      // kJson: the name of a field
    kFieldText,  // within the name of a field
    kColon,
    kValue,      // kJson: the value of a field
    kText,       // within a string value
    kScalar,     // within a number, true, false or null
    kNext,       // kJson: ',' or '}'
    kName,       // kNamed, kTagged: the name of the tool
    kObject,     // kNamed: the '{' of the arguments
    kArguments,  // within the object of the arguments
    kPair,       // kTagged: a key with its value
    kDone,
    kFailed,
  };
  enum class Field { kName, kArguments, kOther };

  bool Advance(std::string_view text, size_t& at);  // false: needs more text
  void ReadSymbol(char c);
  void ReadString(char c);
  void ReadScalar(std::string_view text, size_t& at);
  void ReadArguments(char c);
  void BeginValue(char c);
  void EndField();
  void EndString();
  bool ReadName(std::string_view text, size_t& at);
  bool ReadPair(std::string_view text, size_t& at);
  void AddPair(const std::string& key, std::string_view value);
  bool SetName(std::string_view name);
  void Fail() { step_ = Step::kFailed; }

  const CallMarkup& markup_;
  const StringParameters& strings_;
  Step step_;
  Field field_ = Field::kOther;
  JsonScanner scanner_;
  std::string token_;  // the string or scalar that is being read, as JSON
  std::string name_;
  std::string number_;
  std::string arguments_;
  bool has_arguments_ = false;
  size_t num_pairs_ = 0;
  size_t searched_ = 0;  // how far an unfinished pair was searched for its end, in vain
};

}  // namespace tandem
