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
    skip_space();
    if (at_ != text_.size()) fail("expected the end of the text");
    return g;
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

  void input(Builder& b, std::unordered_map<std::string, Value>& values) {
    const std::string id = value_name();
    expect(':');
    const TensorType t = type();
    const std::string_view kind = word();
    std::optional<InputKind> k;
    for (InputKind c : {InputKind::param, InputKind::buffer, InputKind::optimizer, InputKind::gradient,
                        InputKind::batch, InputKind::step})
      if (to_string(c) == kind) k = c;
    if (!k) fail("unknown kind of input");
    const std::string name = string();
    define(values, id, b.input(t, *k, name));
  }

  void output(Builder& b, const std::unordered_map<std::string, Value>& values) {
    const Value v = use(values);
    const std::string_view kind = word();
    std::optional<OutputKind> k;
    for (OutputKind c : {OutputKind::state, OutputKind::metric, OutputKind::result})
      if (to_string(c) == kind) k = c;
    if (!k) fail("unknown kind of output");
    Output o{v.id(), *k, string(), -1};
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
    const size_t end = at_;
    try {
      b.set_origin(origin);
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

}  // namespace lathe
