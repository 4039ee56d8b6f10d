#include "nn/net.h"

namespace lathe {

Value Net::param(const std::string& name, const Shape& shape, Init init, FileLayout file) {
  const TensorType type{DType::f32, shape};
  specs_.push_back({name, type, InputKind::param, init, std::move(file)});
  params_.push_back(b_.input(type, InputKind::param, name));
  return params_.back();
}

Value Net::buffer(const std::string& name, const Shape& shape, Init init) {
  const TensorType type{DType::f32, shape};
  specs_.push_back({name, type, InputKind::buffer, init, {}});
  return b_.input(type, InputKind::buffer, name);
}

}  // namespace lathe
