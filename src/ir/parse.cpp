// Recursive-descent parser of the text form; see print.h for the grammar by example.
#include <charconv>
#include <limits>
#include <optional>
#include <unordered_map>

#include "ir/builder.h"
#include "ir/print.h"

namespace lathe {
namespace {

constexpr int kMaxDepth = 8;  // bodies inside bodies

class Parser {
 public:
  Parser(std::string_view text, const OpRegistry& ops) : text_(text), ops_(ops) {}

  Graph run() {
    Graph g = graph();
    end();
    return g;
  }

  StepSet run_set() {
    StepSet s;
    keyword("set");
    expect('{');
    while (!accept('}')) {
      if (accept_word("state"))
        s.state.add(state());
      else
        s.graphs.push_back(graph());
    }
    end();
    return s;
  }

 private:
  Graph graph() {
    if (++depth_ > kMaxDepth) fail("bodies are nested too deeply");
    keyword("graph");
    skip_space();
    std::string name = peek() == '"' ? string() : std::string(word());
    if (name == "_") name.clear();
    Builder b(name);
    std::unordered_map<std::string, Value> values;
    expect('{');
    while (!accept('}')) {
      skip_space();
      if (peek() == '%')
        node(b, values);
      else if (accept_word("input"))
        input(b, values);
      else if (accept_word("output"))
        output(b, values);
      else
        fail("expected `input`, `output`, a node or `}`");
    }
    --depth_;
    return b.finish();
  }

  // The one of which the next word is the name.
  template <class T>
  T one_of(std::initializer_list<T> all, const char* what) {
    const std::string_view w = word();
    for (const T& t : all)
      if (to_string(t) == w) return t;
    fail(fmt::format("`{}` is an unknown {}", w, what));
  }

  InputKind input_kind() {
    return one_of<InputKind>({InputKind::param, InputKind::buffer, InputKind::optimizer, InputKind::gradient,
                              InputKind::batch, InputKind::step},
                             "kind of input");
  }

  // state f32[10] param "fc.bias" {init="uniform", ...}: attributes that say what the defaults say are left out.
  StateSpec state() {
    StateSpec s;
    s.type = type();
    s.kind = input_kind();
    s.name = string();
    names_.clear();
    if (!accept('{')) return s;
    for (auto& [name, attr] : attributes()) set_attribute(s, name, attr);
    return s;
  }

  void set_attribute(StateSpec& s, std::string_view name, const Attr& attr) {
    const auto is = [&](std::string_view wanted) { return name == wanted; };
    const auto text = [&]() -> const std::string& {
      const std::string* value = std::get_if<std::string>(&attr);
      if (!value) fail(fmt::format("{}: expected a string", name));
      return *value;
    };
    const auto list = [&]() -> const Ints& {
      const Ints* value = std::get_if<Ints>(&attr);
      if (!value) fail(fmt::format("{}: expected a list of whole numbers", name));
      return *value;
    };
    const auto integer = [&] {
      const int64_t* value = std::get_if<int64_t>(&attr);
      if (!value) fail(fmt::format("{}: expected a whole number", name));
      return *value;
    };
    if (is("init")) {
      const std::string& kind = text();
      s.init.kind = kind == "uniform"  ? Init::Kind::uniform
                    : kind == "normal" ? Init::Kind::normal
                                       : Init::Kind::constant;
      if (kind != "constant" && s.init.kind == Init::Kind::constant) fail(fmt::format("init: unknown kind {}", kind));
    } else if (is("value")) {
      const int64_t* whole = std::get_if<int64_t>(&attr);
      const double* number = std::get_if<double>(&attr);
      if (!whole && !number) fail("value: expected a number");
      s.init.value = whole ? static_cast<double>(*whole) : *number;
    } else if (is("view")) {
      s.file.view = list();
    } else if (is("perm")) {
      s.file.perm = list();
    } else if (is("shape")) {
      s.file.shape = list();
    } else if (is("like")) {
      s.like = text();
    } else if (is("of")) {
      s.of = text();
    } else if (is("gated")) {
      const bool* value = std::get_if<bool>(&attr);
      if (!value) fail("gated: expected true or false");
      s.gated = *value;
    } else if (is("saved_in")) {
      bool known = false;
      for (const StateFile f : {StateFile::none, StateFile::model, StateFile::optimizer, StateFile::average})
        if (to_string(f) == text()) s.saved_in = f, known = true;
      if (!known) fail(fmt::format("saved_in: unknown file {}", text()));
    } else if (is("saved_as")) {
      s.saved_as = text();
    } else if (is("owner")) {
      s.owner = text();
    } else if (is("split")) {
      s.part.axis = integer();
    } else if (is("whole")) {
      s.part.whole = list();
    } else if (is("first")) {
      s.part.first = integer();
    } else {
      fail(fmt::format("unknown attribute `{}` of a state", name));
    }
  }

  void input(Builder& b, std::unordered_map<std::string, Value>& values) {
    const std::string id = value_name();
    expect(':');
    const TensorType t = type();
    const InputKind kind = input_kind();
    const std::string name = string();
    define(values, id, b.input(t, kind, name));
  }

  void output(Builder& b, const std::unordered_map<std::string, Value>& values) {
    const Value v = use(values);
    const auto kind = one_of<OutputKind>({OutputKind::state, OutputKind::metric, OutputKind::result}, "kind of output");
    Output o{v.id(), kind, string(), -1};
    if (accept_word("updates")) o.updates = use(values).id();
    b.mutable_graph().outputs.push_back(std::move(o));
  }

  void node(Builder& b, std::unordered_map<std::string, Value>& values) {
    const size_t start = at_;  // errors of the node as a whole are reported here
    std::vector<std::pair<std::string, TensorType>> results;
    do {
      std::string id = value_name();
      expect(':');
      results.emplace_back(std::move(id), type());
    } while (accept(','));
    expect('=');
    const std::string op_name(word());
    const OpDef* op = ops_.find(op_name);
    if (!op) fail(fmt::format("unknown op `{}`", op_name));
    Values args;
    expect('(');
    if (!accept(')')) {
      do args.push_back(use(values));
      while (accept(','));
      expect(')');
    }
    if (op->info.inputs >= 0 ? static_cast<int>(args.size()) != op->info.inputs : args.empty())
      fail(fmt::format("`{}` takes {} inputs, got {}", op_name, op->info.inputs, args.size()));
    names_.clear();
    Attrs attrs;
    if (accept('{')) attrs = attributes();
    std::string origin;
    if (accept('@')) origin = string();
    Role role = Role::model;
    if (accept_word("as")) role = one_of<Role>({Role::model, Role::loss, Role::metric, Role::update}, "role");
    const size_t end = at_;
    try {
      b.set_origin(origin);
      b.set_role(role);
      const Values out = b.add(*op, args, op->from_attrs(attrs));
      at_ = start;
      if (out.size() != results.size()) fail(fmt::format("`{}` has {} outputs", op_name, out.size()));
      for (size_t i = 0; i < out.size(); ++i) {
        if (out[i].type() != results[i].second)
          fail(fmt::format("`{}` gives {}, the text says {}", op_name, to_string(out[i].type()),
                           to_string(results[i].second)));
        define(values, results[i].first, out[i]);
      }
    } catch (const UserError& e) {
      if (failed_) throw;
      at_ = start;
      fail(e.what());
    }
    at_ = end;
  }

  Attrs attributes() {
    std::vector<std::pair<std::string, Attr>> parsed;
    if (!accept('}')) {
      do {
        std::string name(word());
        expect('=');
        parsed.emplace_back(std::move(name), attribute());
      } while (accept(','));
      expect('}');
    }
    // Attrs views its names: they must outlive it, and bodies parse their own in between.
    Attrs attrs;
    for (auto& [name, attr] : parsed) {
      names_.push_back(std::make_unique<std::string>(std::move(name)));
      attrs.emplace_back(*names_.back(), std::move(attr));
    }
    return attrs;
  }

  Attr attribute() {
    skip_space();
    const char c = peek();
    if (c == '"') return string();
    if (c == '[') return ints();
    if (c == '-' || (c >= '0' && c <= '9')) return number();
    const size_t start = at_;
    const std::string_view w = word();
    if (w == "true") return true;
    if (w == "false") return false;
    if (w == "inf") return std::numeric_limits<double>::infinity();
    if (w == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (w == "none") return GraphPtr();
    if (const auto t = parse_dtype(w)) return *t;
    if (w == "graph") {
      at_ = start;
      return std::make_shared<const Graph>(graph());
    }
    fail(fmt::format("`{}` is not a parameter value", w));
  }

  Attr number() {
    const size_t start = at_;
    if (peek() == '-') ++at_;
    if (text_.substr(at_, 3) == "inf") {
      at_ += 3;
      return -std::numeric_limits<double>::infinity();
    }
    bool whole = true;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '.' || c == 'e' || c == 'E' ||
          ((c == '+' || c == '-') && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E')))
        whole = false;
      else if (c < '0' || c > '9')
        break;
      ++at_;
    }
    const char *first = text_.data() + start, *last = text_.data() + at_;
    if (whole) {
      int64_t v = 0;
      const auto [end, ec] = std::from_chars(first, last, v);
      if (ec != std::errc() || end != last) fail("not a whole number of 64 bits");
      return v;
    }
    double v = 0;
    const auto [end, ec] = std::from_chars(first, last, v);
    if (ec != std::errc() || end != last) fail("not a number");
    return v;
  }

  Ints ints() {
    Ints out;
    expect('[');
    if (accept(']')) return out;
    do {
      skip_space();
      const Attr v = number();
      if (!std::holds_alternative<int64_t>(v)) fail("expected a whole number");
      out.push_back(std::get<int64_t>(v));
    } while (accept(','));
    expect(']');
    return out;
  }

  TensorType type() {
    const std::string_view w = word();
    const auto dtype = parse_dtype(w);
    if (!dtype) fail(fmt::format("unknown element type `{}`", w));
    skip_space();
    try {
      return {*dtype, Shape(ints())};
    } catch (const UserError& e) {
      if (failed_) throw;
      fail(e.what());
    }
  }

  std::string string() {
    expect('"');
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') {
      char c = text_[at_++];
      if (c == '\\' && at_ < text_.size()) {
        c = text_[at_++];
        if (c == 'n') c = '\n';
      }
      out += c;
    }
    if (at_ == text_.size()) fail("a string without an end");
    ++at_;
    return out;
  }

  std::string value_name() {
    expect('%');
    return std::string(word());
  }

  Value use(const std::unordered_map<std::string, Value>& values) {
    const std::string id = value_name();
    const auto it = values.find(id);
    if (it == values.end()) fail(fmt::format("%{} is not defined", id));
    return it->second;
  }

  void define(std::unordered_map<std::string, Value>& values, const std::string& id, Value v) {
    if (!values.emplace(id, v).second) fail(fmt::format("%{} is defined twice", id));
  }

  static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  }
  std::string_view word() {
    skip_space();
    const size_t start = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    if (at_ == start) fail("expected a word");
    return text_.substr(start, at_ - start);
  }
  bool accept_word(std::string_view w) {
    skip_space();
    if (text_.substr(at_, w.size()) != w || (at_ + w.size() < text_.size() && is_word(text_[at_ + w.size()])))
      return false;
    at_ += w.size();
    return true;
  }
  void end() {
    skip_space();
    if (at_ != text_.size()) fail("expected the end of the text");
  }
  void keyword(std::string_view w) {
    if (!accept_word(w)) fail(fmt::format("expected `{}`", w));
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool accept(char c) {
    skip_space();
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("expected `{}`", c));
  }
  void skip_space() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r') {
        ++at_;
      } else {
        return;
      }
    }
  }

  [[noreturn]] void fail(const std::string& what) {
    failed_ = true;
    int line = 1, column = 1;
    for (size_t i = 0; i < at_ && i < text_.size(); ++i) {
      ++column;
      if (text_[i] == '\n') {
        ++line;
        column = 1;
      }
    }
    throw UserError(fmt::format("graph text, line {} column {}: {}", line, column, what));
  }

  std::string_view text_;
  const OpRegistry& ops_;
  size_t at_ = 0;
  int depth_ = 0;
  bool failed_ = false;
  std::vector<std::unique_ptr<std::string>> names_;
};

}  // namespace

Graph parse_graph(std::string_view text, const OpRegistry& ops) { return Parser(text, ops).run(); }
StepSet parse_step_set(std::string_view text, const OpRegistry& ops) { return Parser(text, ops).run_set(); }

}  // namespace lathe
