#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace lathe::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string inputs_text(const OpDef& op) { return op.info.inputs < 0 ? "1 or more" : std::to_string(op.info.inputs); }

std::string kind_text(const OpDef& op) {
  std::vector<std::string_view> words;
  if (op.is_composite()) words.push_back("composite");
  if (op.has(kElementwise)) words.push_back("elementwise");
  if (op.has(kReduction)) words.push_back("reduction");
  if (op.has(kView)) words.push_back("view");
  if (op.has(kProduct)) words.push_back("product");
  if (op.has(kRandom)) words.push_back("random");
  if (op.has(kOrdered)) words.push_back("ordered");
  if (op.has(kInPlace)) words.push_back("in place");
  return fmt::format("{}", fmt::join(words, ", "));
}

// Composites without a vjp are differentiated through their expansion.
const char* derivative_text(const OpDef& op) { return op.vjp ? "rule" : op.expand ? "by expansion" : "none"; }

std::string value_text(std::string_view name, const Attr& value) {
  if (std::holds_alternative<GraphPtr>(value)) return "a graph";
  const std::string text = to_string(Attrs{{name, value}});  // {name=value}
  return text.substr(name.size() + 2, text.size() - name.size() - 3);
}

Json op_json(const OpDef& op) {
  Json params = Json::array();
  for (const auto& [name, value] : op.to_attrs(op.from_attrs({}).get()))
    params.push_back({{"name", name}, {"default", value_text(name, value)}});
  return {{"op", op.name()},       {"inputs", inputs_text(op)},         {"parameters", params},
          {"kind", kind_text(op)}, {"derivative", derivative_text(op)}, {"samples", op.samples().size()},
          {"doc", op.info.doc}};
}

void print_markdown(const Json& ops) {
  fmt::print(
      "# Ops\n\nWritten by `lathe ops`; a test compares. Which kernel runs an op where: `lathe devices --ops`.\n\n"
      "Composite ops are written in terms of others and run as their expansion where a device has no kernel for them. "
      "A\n"
      "derivative is a rule of the op's own, or that of its expansion; without one nothing flows back through the "
      "op.\n\n"
      "| op | inputs | parameters and defaults | kind | derivative | meaning |\n|---|---|---|---|---|---|\n");
  for (const Json& op : ops) {
    std::string params;
    for (const Json& p : op["parameters"])
      params += fmt::format("{}`{} = {}`", params.empty() ? "" : ", ", p["name"].get<std::string>(),
                            p["default"].get<std::string>());
    fmt::print("| `{}` | {} | {} | {} | {} | {} |\n", op["op"].get<std::string>(), op["inputs"].get<std::string>(),
               params, op["kind"].get<std::string>(), op["derivative"].get<std::string>(),
               op["doc"].get<std::string>());
  }
}

}  // namespace

void add_ops(CLI::App& app, int&) {
  auto json = std::make_shared<bool>(false);
  CLI::App* cmd = app.add_subcommand("ops", "The op reference, as Markdown");
  cmd->add_flag("--json", *json, "Print it as JSON");
  cmd->footer("Example: lathe ops > docs/ops.md");
  cmd->callback([json] {
    Json ops = Json::array();
    for (const OpDef* op : registry().all()) ops.push_back(op_json(*op));
    if (*json)
      fmt::print("{}\n", ops.dump(2));
    else
      print_markdown(ops);
  });
}

}  // namespace lathe::cli
