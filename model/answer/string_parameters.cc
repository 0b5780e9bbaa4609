#include "model/answer/string_parameters.h"

namespace tandem {

StringParameters StringParametersOf(const nlohmann::ordered_json& tools) {
  StringParameters strings;
  if (!tools.is_array()) return strings;
  const auto field = [](const nlohmann::ordered_json& object, const char* name) {
    const auto found = object.is_object() ? object.find(name) : object.end();
    return object.is_object() && found != object.end() ? &*found : nullptr;
  };
  for (const nlohmann::ordered_json& tool : tools) {
    const auto* function = field(tool, "function");
    if (function == nullptr) function = &tool;
    const auto* name = field(*function, "name");
    const auto* parameters = field(*function, "parameters");
    const auto* properties = parameters == nullptr ? nullptr : field(*parameters, "properties");
    if (name == nullptr || !name->is_string() || properties == nullptr) continue;
    if (!properties->is_object()) continue;
    for (const auto& [key, schema] : properties->items()) {
      const auto* type = field(schema, "type");
      if (type != nullptr && *type == "string") strings.emplace(name->get<std::string>(), key);
    }
  }
  return strings;
}

}  // namespace tandem
