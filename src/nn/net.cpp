#include "nn/net.h"

namespace lathe {

StateSpec average_of(const StateSpec& s) {
  return {std::string(kAveragePrefix) + s.name, s.type, InputKind::optimizer, s.init, s.file, s.name};
}

Value Net::state(StateSpec s) {
  if (const auto found = known_.find(s.name); found != known_.end()) return found->second;
  if (averaged_ && averaged_(s)) s = average_of(s);
  values_.push_back(b_.input(s.type, s.kind, s.name));
  specs_.push_back(std::move(s));
  return values_.back();
}

Value Net::param(const std::string& name, const Shape& shape, Init init, FileLayout file) {
  params_.push_back(state({name, {DType::f32, shape}, InputKind::param, init, std::move(file), {}}));
  return params_.back();
}

Value Net::buffer(const std::string& name, const Shape& shape, Init init) {
  return state({name, {DType::f32, shape}, InputKind::buffer, init, {}, {}});
}

}  // namespace lathe
