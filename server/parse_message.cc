#include "server/parse_message.h"

#include "base/status.h"
#include "base/utf8.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/unknown_field_set.h"

namespace tandem {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

// The first string field of the outermost message that is not UTF-8, or nothing.
absl::Status FindInvalidUtf8(std::string_view bytes,
                             const google::protobuf::Descriptor& descriptor) {
  UnknownFieldSet fields;
  if (!fields.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return absl::OkStatus();
  for (int i = 0; i < fields.field_count(); ++i) {
    const UnknownField& field = fields.field(i);
    const FieldDescriptor* known = descriptor.FindFieldByNumber(field.number());
    if (known == nullptr || known->type() != FieldDescriptor::TYPE_STRING ||
        field.type() != UnknownField::TYPE_LENGTH_DELIMITED) {
      continue;
    }
    const size_t valid = ValidUtf8Prefix(field.length_delimited());
    if (valid < field.length_delimited().size()) {
      return InvalidArgument("{} is not UTF-8: byte {} begins no character", known->name(), valid);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseMessage(std::string_view bytes, google::protobuf::Message& message) {
  const google::protobuf::Descriptor& descriptor = *message.GetDescriptor();
  // Checked first: protobuf's own parser would log a line for each.
  RETURN_IF_ERROR(FindInvalidUtf8(bytes, descriptor));
  if (message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return absl::OkStatus();
  return InvalidArgument("the {} bytes of the request are no {}", bytes.size(),
                         descriptor.full_name());
}

}  // namespace tandem
