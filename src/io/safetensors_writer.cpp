#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/checked.h"
#include "io/safetensors.h"

namespace lathe::io {

namespace {

std::string_view file_dtype(DType t) {
  switch (t) {
    case DType::f32: return "F32";
    case DType::f64: return "F64";
    case DType::i32: return "I32";
    case DType::i64: return "I64";
    case DType::u8: return "U8";
    case DType::b8: return "BOOL";
    case DType::f16: return "F16";
    case DType::bf16: return "BF16";
  }
  return "";
}

// Throws for what is not UTF-8: names come from graphs and recipes, and the header must stay readable for others.
std::string json_string(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw UserError("safetensors: a name or metadata string is not valid UTF-8");
  }
}

}  // namespace

void write_safetensors(FileWriter& out, std::span<const TensorData> tensors, const Metadata& metadata) {
  std::vector<const TensorData*> order;
  std::set<std::string_view> names;
  for (const TensorData& t : tensors) {
    LATHE_USER_CHECK(t.name != "__metadata__" && t.name.find('\0') == std::string::npos && names.insert(t.name).second,
                     "{}: tensor name \"{}\" is reserved, contains NUL or occurs twice", out.path(), t.name);
    LATHE_CHECK(static_cast<int64_t>(t.bytes.size()) == t.type.bytes(), "tensor {}: {} has {} bytes, got {}", t.name,
                to_string(t.type), t.type.bytes(), t.bytes.size());
    order.push_back(&t);
  }
  std::stable_sort(order.begin(), order.end(), [](const TensorData* a, const TensorData* b) {
    return size_of(a->type.dtype) > size_of(b->type.dtype);
  });

  Metadata all = metadata;
  all["format"] = "pt";
  std::string header = "{\"__metadata__\":{";
  for (const char* comma = ""; const auto& [key, value] : all) {
    header += fmt::format("{}{}:{}", comma, json_string(key), json_string(value));
    comma = ",";
  }
  header += "}";
  int64_t at = 0;
  for (const TensorData* t : order) {
    const int64_t end = checked_add(at, t->type.bytes(), "safetensors size");
    header += fmt::format(",{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", json_string(t->name),
                          file_dtype(t->type.dtype), fmt::join(t->type.shape, ","), at, end);
    at = end;
  }
  header += "}";
  header.resize(static_cast<size_t>(round_up(static_cast<int64_t>(header.size()), 8)), ' ');
  LATHE_USER_CHECK(static_cast<int64_t>(header.size()) <= SafetensorsFile::kMaxHeaderBytes,
                   "{}: header of {} bytes exceeds the format's limit of {}", out.path(), header.size(),
                   SafetensorsFile::kMaxHeaderBytes);

  const uint64_t length = header.size();
  out.write(std::as_bytes(std::span(&length, 1)));
  out.write(header);
  for (const TensorData* t : order) out.write(t->bytes);
}

}  // namespace lathe::io
