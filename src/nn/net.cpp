#include "nn/net.h"

namespace lathe {

StateSpec average_of(const StateSpec& s) {
  return {std::string(kAveragePrefix) + s.name, s.type, InputKind::optimizer, s.init, s.file, s.name};
}

Value Net::state(StateSpec s) {
  if (const auto found = known_.find(s.name); found != known_.end()) return found->second;
  if (averaged_ && averaged_(s)) s = average_of(s);
  const auto [place, is_new] = at_.emplace(s.name, specs_.size());
  if (!is_new) {
    const StateSpec* same = &specs_[place->second];
    LATHE_USER_CHECK(same->type == s.type && same->kind == s.kind, "{}: expected {} {} as where it was made, got {} {}",
                     s.name, to_string(same->kind), to_string(same->type), to_string(s.kind), to_string(s.type));
    LATHE_USER_CHECK(same->init == s.init && same->file == s.file,
                     "{}: expected the first value and layout with which it was made, got others", s.name);
    return values_[place->second];
  }
  values_.push_back(b_.input(s.type, s.kind, s.name));
  specs_.push_back(std::move(s));
  return values_.back();
}

Value Net::param(const std::string& name, const Shape& shape, Init init, FileLayout file) {
  const Value v = state({name, {DType::f32, shape}, InputKind::param, init, std::move(file), {}});
  if (param_ids_.insert(v.id()).second) params_.push_back(v);
  return v;
}

Value Net::buffer(const std::string& name, const Shape& shape, Init init) {
  return state({name, {DType::f32, shape}, InputKind::buffer, init, {}, {}});
}

}  // namespace lathe
