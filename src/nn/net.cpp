#include "nn/net.h"

namespace lathe {

Value Net::state(StateSpec s) {
  if (const StateSpec* same = specs_.find(s.name)) {
    LATHE_USER_CHECK(same->type == s.type && same->kind == s.kind, "{}: expected {} {} as where it was made, got {} {}",
                     s.name, to_string(same->kind), to_string(same->type), to_string(s.kind), to_string(s.type));
    LATHE_USER_CHECK(same->init == s.init && same->file == s.file,
                     "{}: expected the first value and layout with which it was made, got others", s.name);
    return made_.at(s.name);
  }
  const Value v = b_.input(s.type, s.kind, s.name);
  values_.push_back(v);
  made_.emplace(s.name, v);
  if (s.kind == InputKind::param) params_.push_back(v);
  specs_.add(std::move(s));
  return v;
}

Value Net::param(const std::string& name, const Shape& shape, Init init, FileLayout file) {
  StateSpec s{name, {DType::f32, shape}, InputKind::param, init, std::move(file)};
  s.gated = true;
  return state(std::move(s));
}

Value Net::buffer(const std::string& name, const Shape& shape, Init init) {
  StateSpec s{name, {DType::f32, shape}, InputKind::buffer, init, {}};
  s.gated = true;
  return state(std::move(s));
}

}  // namespace lathe
