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

struct Layout {
  std::vector<const TensorData*> order;  // of the data
  std::string head;                      // everything before them
  int64_t size = 0;                      // of the file
};

Layout layout_of(std::span<const TensorData> tensors, const Metadata& metadata) {
  Layout out;
  std::set<std::string_view> names;
  for (const TensorData& t : tensors) {
    LATHE_USER_CHECK(t.name != "__metadata__" && t.name.find('\0') == std::string::npos && names.insert(t.name).second,
                     "safetensors: tensor name \"{}\" is reserved, contains NUL or occurs twice", t.name);
    out.order.push_back(&t);
  }
  std::stable_sort(out.order.begin(), out.order.end(), [](const TensorData* a, const TensorData* b) {
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
  for (const TensorData* t : out.order) {
    const int64_t end = checked_add(at, t->type.bytes(), "safetensors size");
    header += fmt::format(",{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", json_string(t->name),
                          file_dtype(t->type.dtype), fmt::join(t->type.shape, ","), at, end);
    at = end;
  }
  header += "}";
  header.resize(static_cast<size_t>(round_up(static_cast<int64_t>(header.size()), 8)), ' ');
  LATHE_USER_CHECK(static_cast<int64_t>(header.size()) <= SafetensorsFile::kMaxHeaderBytes,
                   "safetensors: a header of {} bytes exceeds the format's limit of {}", header.size(),
                   SafetensorsFile::kMaxHeaderBytes);
  const uint64_t length = header.size();
  out.head.append(reinterpret_cast<const char*>(&length), sizeof length);
  out.head += header;
  out.size = checked_add(static_cast<int64_t>(out.head.size()), at, "safetensors size");
  return out;
}

}  // namespace

int64_t safetensors_size(std::span<const TensorData> tensors, const Metadata& metadata) {
  return layout_of(tensors, metadata).size;
}

void write_safetensors(FileWriter& out, std::span<const TensorData> tensors, const Metadata& metadata) {
  const Layout layout = layout_of(tensors, metadata);
  out.write(layout.head);
  for (const TensorData* t : layout.order) {
    const std::span<const std::byte> bytes = t->make ? t->make() : t->bytes;
    LATHE_CHECK(static_cast<int64_t>(bytes.size()) == t->type.bytes(), "tensor {}: {} has {} bytes, got {}", t->name,
                to_string(t->type), t->type.bytes(), bytes.size());
    out.write(bytes);
  }
}

}  // namespace lathe::io
