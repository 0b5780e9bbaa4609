#include "server/services/parse_message.h"

#include "base/status.h"
#include "base/utf8.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/unknown_field_set.h"

namespace tandem {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

absl::Status NoSuchMessage(std::string_view bytes, const Descriptor& descriptor) {
  return InvalidArgument("the {} bytes of the request are no {}", bytes.size(),
                         descriptor.full_name());
}

// Checks that all strings are UTF-8, also in nested messages. No message type of Tandem contains
// itself.
absl::Status CheckText(std::string_view bytes, const Descriptor& descriptor) {
  UnknownFieldSet fields;
  if (!fields.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return NoSuchMessage(bytes, descriptor);
  }
  for (int i = 0; i < fields.field_count(); ++i) {
    const UnknownField& field = fields.field(i);
    const FieldDescriptor* known = descriptor.FindFieldByNumber(field.number());
    if (known == nullptr || field.type() != UnknownField::TYPE_LENGTH_DELIMITED) continue;
    const std::string& value = field.length_delimited();
    if (known->type() == FieldDescriptor::TYPE_MESSAGE) {
      RETURN_IF_ERROR(CheckText(value, *known->message_type()));
    } else if (const size_t valid = ValidUtf8Prefix(value);
               known->type() == FieldDescriptor::TYPE_STRING && valid < value.size()) {
      return InvalidArgument("{} is not UTF-8: byte {} begins no character", known->name(), valid);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseMessage(std::string_view bytes, google::protobuf::Message& message) {
  const Descriptor& descriptor = *message.GetDescriptor();
  // Checked before parsing, because protobuf's own parser would log a line for each string that is
  // not UTF-8.
  RETURN_IF_ERROR(CheckText(bytes, descriptor));
  if (message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return absl::OkStatus();
  return NoSuchMessage(bytes, descriptor);
}

}  // namespace tandem
