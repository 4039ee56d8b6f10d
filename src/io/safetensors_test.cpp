#include "io/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "io/files/crash_fs.h"
#include "io/test_util.h"

namespace lathe::io {
namespace {

std::string file_of(std::string_view header, std::string_view data, std::optional<uint64_t> length = {}) {
  const uint64_t n = length.value_or(header.size());
  std::string out(8, '\0');
  std::memcpy(out.data(), &n, 8);
  return out.append(header).append(data);
}

class Safetensors : public ::testing::Test {
 protected:
  SafetensorsFile open(std::string_view bytes) {
    put_file(dir / "x.safetensors", bytes);
    return SafetensorsFile::open(fs, dir / "x.safetensors");
  }
  // The error of opening such a file, which must be named in it. In memory: there are thousands of them.
  std::string error(std::string_view bytes) {
    CrashFs memory;
    FileWriter out(memory, "/x.safetensors");
    out.write(bytes);
    out.finish();
    const std::string text = error_of([&] { SafetensorsFile::open(memory, "/x.safetensors"); });
    EXPECT_TRUE(text.empty() || text.find("/x.safetensors") != std::string::npos) << text;
    return text;
  }
  std::string header_error(std::string_view header, std::string_view data = "") { return error(file_of(header, data)); }

  std::string write(std::span<const TensorData> tensors, const Metadata& metadata = {}) {
    const std::string path = dir / fmt::format("w{}.safetensors", ++written_);
    FileWriter out(fs, path);
    write_safetensors(out, tensors, metadata);
    digest = out.finish();
    return path;
  }

  PosixFs fs;
  TempDir dir;
  FileDigest digest;

 private:
  int written_ = 0;
};

const std::vector<float> kFloats = {1.5f, -2.0f, 3.25f, 0.0f, 1e-30f, 7.0f};
const std::vector<uint8_t> kBools = {1, 0, 1};
const std::vector<int64_t> kLongs = {1LL << 40, -1};

std::vector<TensorData> some_tensors() {
  return {{"flags", {DType::b8, {3}}, std::as_bytes(std::span(kBools))},
          {"w", {DType::f32, {2, 3}}, std::as_bytes(std::span(kFloats))},
          {"empty", {DType::f32, {0, 4}}, {}},
          {"ids", {DType::i64, {2}}, std::as_bytes(std::span(kLongs))},
          {"scalar", {DType::f32, {}}, std::as_bytes(std::span(kFloats).first(1))}};
}

TEST_F(Safetensors, RoundTripsAndIsDeterministic) {
  const auto tensors = some_tensors();
  const std::string path = write(tensors, {{"step", "7"}});
  EXPECT_EQ(digest, digest_file(fs, path));
  EXPECT_EQ(get_file(path), get_file(write(tensors, {{"step", "7"}})));

  const auto file = SafetensorsFile::open(fs, path);
  EXPECT_EQ(file.metadata(), (Metadata{{"format", "pt"}, {"step", "7"}}));
  ASSERT_EQ(file.tensors().size(), tensors.size());
  EXPECT_EQ(file.tensors()[0].name, "ids");  // widest elements first, so that all are aligned
  EXPECT_EQ(file.tensors()[0].begin % 8, 0);
  for (const TensorData& t : tensors) {
    const TensorEntry* e = file.find(t.name);
    ASSERT_TRUE(e) << t.name;
    EXPECT_EQ(e->dtype, t.type.dtype);
    EXPECT_EQ(e->shape, t.type.shape);
    EXPECT_EQ(e->begin % size_of(t.type.dtype), 0);
    std::vector<std::byte> got(static_cast<size_t>(e->bytes()));
    file.read(*e, got);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), t.bytes.begin(), t.bytes.end())) << t.name;
  }
  EXPECT_EQ(file.find("missing"), nullptr);
  EXPECT_TRUE(file.unsupported().empty());
}

TEST_F(Safetensors, WriterRefusesWhatNobodyCouldRead) {
  const TensorData t{"a", {DType::f32, {1}}, std::as_bytes(std::span(kFloats).first(1))};
  TensorData reserved = t, binary = t;
  reserved.name = "__metadata__";
  binary.name = "\xff";
  EXPECT_CONTAINS(error_of([&] { write(std::vector{t, t}); }), "twice");
  EXPECT_CONTAINS(error_of([&] { write(std::vector{reserved}); }), "reserved");
  EXPECT_CONTAINS(error_of([&] { write(std::vector{binary}); }), "UTF-8");
  TensorData odd = t;
  odd.name = "quote\" back\\slash \n \xc3\xa9";
  EXPECT_TRUE(SafetensorsFile::open(fs, write(std::vector{odd})).find(odd.name));
}

// F01
TEST_F(Safetensors, TruncationAtEveryHeaderByteAndManyDataBytesIsAnError) {
  std::vector<float> big(5000, 1.0f);
  auto tensors = some_tensors();
  tensors.push_back({"big", {DType::f32, {5000}}, std::as_bytes(std::span(big))});
  const std::string whole = get_file(write(tensors));
  uint64_t header = 0;
  std::memcpy(&header, whole.data(), 8);
  std::mt19937_64 rng(1);
  std::vector<size_t> cuts;
  for (size_t n = 0; n < 8 + header; ++n) cuts.push_back(n);
  for (int i = 0; i < 200; ++i) cuts.push_back(8 + header + rng() % (whole.size() - 8 - header));
  for (const size_t n : cuts) {
    EXPECT_CONTAINS(error(std::string_view(whole).substr(0, n)), fmt::format("{}", n))
        << "the actual size must be named";
  }
  EXPECT_EQ(error(whole), "");
  Exit exit = Exit::ok;
  EXPECT_NE(error_of([&] { open(whole.substr(0, 100)); }, &exit), "");
  EXPECT_EQ(exit, Exit::bad_data);
  EXPECT_CONTAINS(
      error(whole.substr(0, whole.size() - 1)),
      fmt::format("expected a file of {} + {} bytes, got {}", 8 + header, whole.size() - 8 - header, whole.size() - 1));
}

// F03
TEST_F(Safetensors, BadHeaderLengthsAllocateNothing) {
  const std::string_view header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  const uint64_t size = 8 + header.size() + 1;
  EXPECT_EQ(error(file_of(header, "x")), "");
  for (const uint64_t n :
       {uint64_t{0}, uint64_t{1}, uint64_t{7}, size - 7, uint64_t{100'000'001}, uint64_t{1} << 63, ~uint64_t{0}}) {
    const std::string bytes = file_of(header, "x", n);
    EXPECT_NE(error(bytes), "") << n;
    EXPECT_TRUE(run_with_memory_limit(4 << 20, [&] { return !error_of([&] { open(bytes); }).empty(); })) << n;
  }
  EXPECT_CONTAINS(error(file_of(header, "x", 100'000'001)), "exceeds the format's limit");
  EXPECT_CONTAINS(error(file_of(header, "x", size)), "truncated");
  EXPECT_CONTAINS(error(file_of(" {}", "")), "must start with '{'");
  EXPECT_EQ(error(file_of("{}", "")), "");
  EXPECT_EQ(error(file_of("{}      ", "")), "");
}

std::string one_tensor(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return fmt::format(R"({{"a":{{"dtype":"{}","shape":{},"data_offsets":{}}}}})", dtype, shape, offsets);
}

// F04
TEST_F(Safetensors, HostileShapes) {
  const std::string data(16, 'x');
  EXPECT_CONTAINS(header_error(one_tensor("F32", "[4194305,4194305,211106198978564]", "[0,16]"), data),
                  "shape overflow");
  EXPECT_CONTAINS(header_error(one_tensor("F32", "[-1]", "[0,16]"), data), "non-negative");
  EXPECT_CONTAINS(header_error(one_tensor("F32", "[9223372036854775808]", "[0,16]"), data), "shape overflow");
  EXPECT_CONTAINS(header_error(one_tensor("F32", "[9223372036854775807]", "[0,16]"), data), "shape overflow");
  EXPECT_CONTAINS(header_error(one_tensor("F32", "[99999999999999999999999]", "[0,16]"), data), "shape overflow");
  EXPECT_CONTAINS(header_error(one_tensor("F32", "[4.0]", "[0,16]"), data), "integer");
  EXPECT_CONTAINS(header_error(one_tensor("F32", "[1e400]", "[0,16]"), data), "JSON");
  std::string ones = "[1";
  for (int i = 1; i < 10'000; ++i) ones += ",1";
  EXPECT_CONTAINS(header_error(one_tensor("F32", ones + "]", "[0,4]"), "xxxx"), "shape overflow");
  EXPECT_CONTAINS(header_error(one_tensor("F32", "[3]", "[0,16]"), data), "needs 96 bits");
  EXPECT_EQ(header_error(one_tensor("F32", "[4]", "[0,16]"), data), "");
  EXPECT_EQ(header_error(one_tensor("F32", "[]", "[0,4]"), "xxxx"), "");
}

std::string two_tensors(std::string_view a, std::string_view b, int na = 4, int nb = 4) {
  return fmt::format(
      R"({{"a":{{"dtype":"U8","shape":[{}],"data_offsets":{}}},"b":{{"dtype":"U8","shape":[{}],"data_offsets":{}}}}})",
      na, a, nb, b);
}

// F05
TEST_F(Safetensors, LayoutMustTileTheData) {
  const std::string data(8, 'x');
  EXPECT_EQ(header_error(two_tensors("[0,4]", "[4,8]"), data), "");
  EXPECT_EQ(header_error(two_tensors("[4,8]", "[0,4]"), data), "");
  EXPECT_CONTAINS(header_error(two_tensors("[0,4]", "[5,9]"), data + "x"), "hole of 1 bytes");
  EXPECT_CONTAINS(header_error(two_tensors("[1,5]", "[5,9]"), data + "x"), "hole of 1 bytes");
  EXPECT_CONTAINS(header_error(two_tensors("[0,4]", "[3,7]"), data), "overlaps");
  EXPECT_CONTAINS(header_error(two_tensors("[0,4]", "[0,4]"), data), "overlaps");
  EXPECT_CONTAINS(header_error(two_tensors("[4,0]", "[4,8]"), data), "reversed");
  EXPECT_CONTAINS(header_error(two_tensors("[0,4]", "[4,8]"), data + "x"), "1 trailing bytes");
  EXPECT_CONTAINS(header_error(two_tensors("[0,4]", "[4,8]"), data.substr(1)), "cut off");
  EXPECT_CONTAINS(header_error(two_tensors("[0,4]", "[9223372036854775803,9223372036854775807]"), data), "hole");
  EXPECT_CONTAINS(header_error("{}", "x"), "1 trailing bytes");
  // Empty tensors share a boundary with their neighbours in every file that has them; inside another tensor they are
  // wrong.
  EXPECT_EQ(header_error(two_tensors("[0,8]", "[8,8]", 8, 0), data), "");
  EXPECT_EQ(header_error(two_tensors("[0,8]", "[0,0]", 8, 0), data), "");
  EXPECT_CONTAINS(header_error(two_tensors("[0,8]", "[4,4]", 8, 0), data), "overlaps");
  EXPECT_CONTAINS(header_error(two_tensors("[0,8]", "[9,9]", 8, 0), data), "hole");
}

// F06
TEST_F(Safetensors, HostileJson) {
  const std::string a = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  const std::string b = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]})";
  EXPECT_CONTAINS(header_error("{" + a + "," + b + "}", "xx"), "duplicate tensor name");
  EXPECT_CONTAINS(header_error(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"),
                  "duplicate key");
  EXPECT_CONTAINS(header_error(R"({"__metadata__":{"k":"1","k":"2"}})"), "duplicate key");
  EXPECT_CONTAINS(header_error(R"({"__metadata__":{},"__metadata__":{}})"), "duplicate key");
  EXPECT_CONTAINS(header_error(R"({"__metadata__":{"k":1}})"), "expected a string");
  EXPECT_CONTAINS(header_error(R"({"__metadata__":{"k":{"x":"y"}}})"), "expected a string");
  EXPECT_CONTAINS(header_error(R"({"__metadata__":null})"), "expected an object");
  EXPECT_CONTAINS(header_error(R"({"__metadata__":"x"})"), "expected an object");
  EXPECT_CONTAINS(header_error(R"({"a":[]})"), "expected an object");
  EXPECT_CONTAINS(header_error(R"({"a":{"dtype":"U8","shape":[0]}})"), "missing key \"data_offsets\"");
  EXPECT_CONTAINS(header_error(R"({"a":{"shape":[0],"data_offsets":[0,0]}})"), "missing key \"dtype\"");
  EXPECT_CONTAINS(header_error(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":1}})"), "unknown key");
  EXPECT_CONTAINS(header_error(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0]}})"), "expected 2 data_offsets");
  EXPECT_CONTAINS(header_error(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0,0]}})"),
                  "expected 2 data_offsets");
  EXPECT_CONTAINS(header_error(R"({"a":{"dtype":"U9","shape":[0],"data_offsets":[0,0]}})"), "unknown dtype");
  EXPECT_CONTAINS(header_error(R"({"a":{"dtype":7,"shape":[0],"data_offsets":[0,0]}})"), "expected a string");
  EXPECT_CONTAINS(header_error(R"({"a":{"dtype":"U8","shape":0,"data_offsets":[0,0]}})"), "expected an array");
  EXPECT_CONTAINS(header_error("{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}"), "NUL");
  EXPECT_CONTAINS(header_error("{\"\xff\":{}}"), "JSON");
  EXPECT_CONTAINS(header_error("{\"\xed\xa0\x80\":{}}"), "JSON");  // an encoded surrogate
  EXPECT_CONTAINS(header_error("{} {}"), "JSON");
  EXPECT_CONTAINS(header_error("{\"a\":1 2}"), "expected an object");
  EXPECT_CONTAINS(header_error("{" + std::string(10'000, '{')), "JSON");
  EXPECT_CONTAINS(header_error("{\"a\":" + std::string(10'000, '[')), "expected an object");
  EXPECT_CONTAINS(header_error("{\"a\":{\"shape\":" + std::string(10'000, '[')), "expected an integer");
  // Tensor names are keys and nothing else.
  for (const char* name : {"../../x", "/etc/passwd", ""})
    EXPECT_TRUE(open(file_of(fmt::format(R"({{"{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}}})", name), ""))
                    .find(name));
}

std::string many_tensors(size_t limit_bytes, int64_t count) {
  std::string header = "{";
  for (int64_t i = 0; i < count && header.size() + 120 < limit_bytes; ++i)
    header +=
        fmt::format("{}\"{:x}\":{{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[{},{}]}}", i ? "," : "", i, i, i + 1);
  return header + "}";
}

TEST_F(Safetensors, ManyTensorsStayFastAndSmall) {
  const std::string accepted = many_tensors(SIZE_MAX, 100'000), refused = many_tensors(100'000'000, INT64_MAX);
  put_file(dir / "ok", file_of(accepted, std::string(100'000, 'x')));
  put_file(dir / "many", file_of(refused, ""));
#ifdef LATHE_TEST_SANITIZED
  const double limit = 20;
#else
  const double limit = 4;  // about 0.7 on a quiet core; a parser that is not linear takes minutes
#endif
  EXPECT_TRUE(run_with_memory_limit(100 << 20, [&] {
    return cpu_seconds([&] { EXPECT_EQ(SafetensorsFile::open(fs, dir / "ok").tensors().size(), 100'000); }) < limit;
  }));
  EXPECT_TRUE(run_with_memory_limit(200 << 20, [&] {
    std::string text;
    const double seconds = cpu_seconds([&] { text = error_of([&] { SafetensorsFile::open(fs, dir / "many"); }); });
    return text.find("more than 500000 tensors") != std::string::npos && seconds < limit;
  }));
}

TEST_F(Safetensors, LongTokensAndBlanksStaySmall) {
  const std::string megabytes(20 << 20, 'a'), blanks(60 << 20, ' '), digits(1000, '1');
  const auto refused = [&](const std::string& header, std::string_view part) {
    const std::string path = dir / "long";
    put_file(path, file_of(header, ""));
    return run_with_memory_limit(
        100 << 20, [&] { return error_of([&] { SafetensorsFile::open(fs, path); }).find(part) != std::string::npos; });
  };
  EXPECT_TRUE(refused("{\"" + megabytes + "\":{}}", "longer than"));
  EXPECT_TRUE(refused("{\"a\":" + digits + "}", "longer than"));
  EXPECT_TRUE(refused("{" + megabytes + "}", "not valid JSON"));
  std::string pairs = R"({"__metadata__":{"")";
  for (int i = 0; i < 3'000'000; ++i) pairs += fmt::format(R"(:"","{:x}")", i);
  EXPECT_TRUE(refused(pairs + ":\"\"}}", "more than 100000 strings"));
  put_file(dir / "blank", file_of("{" + blanks + "}" + blanks.substr(0, 20 << 20), ""));
  EXPECT_TRUE(
      run_with_memory_limit(4 << 20, [&] { return SafetensorsFile::open(fs, dir / "blank").tensors().empty(); }));
}

// F07
TEST_F(Safetensors, UnsupportedTypesAreListedNotFatal) {
  const auto file = open(file_of(R"({"h":{"dtype":"I16","shape":[2],"data_offsets":[0,4]},
      "f4":{"dtype":"F4","shape":[2,3],"data_offsets":[4,7]},"f8":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[7,8]},
      "w":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                                 "0123456789ab"));
  const auto bad = file.unsupported();
  ASSERT_EQ(bad.size(), 3u);
  EXPECT_EQ(bad[0]->name, "h");
  EXPECT_EQ(bad[0]->dtype_name, "I16");
  EXPECT_EQ(file.find("w")->dtype, DType::f32);
  EXPECT_CONTAINS(header_error(one_tensor("F4", "[3]", "[0,2]"), "xx"), "needs 12 bits");
}

TEST_F(Safetensors, BoolsAreZeroOrOne) {
  const auto file = open(file_of(one_tensor("BOOL", "[2]", "[0,2]"), "\x01\x07"));
  std::vector<std::byte> got(2);
  EXPECT_CONTAINS(error_of([&] { file.read(file.tensors()[0], got); }), "expected 0 or 1 for BOOL, got 7");
}

TEST_F(Safetensors, FileThatShrinksWhileOpenIsAnError) {
  const auto file = open(file_of(one_tensor("U8", "[4]", "[0,4]"), "abcd"));
  std::filesystem::resize_file(dir / "x.safetensors", 20);
  std::vector<std::byte> got(4);
  EXPECT_CONTAINS(error_of([&] { file.read(file.tensors()[0], got); }), "ends at byte");
}

// F08
TEST_F(Safetensors, OnlyRegularFilesAndNeverBlocking) {
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  ::alarm(20);  // a blocked open would never return
  EXPECT_CONTAINS(error_of([&] { SafetensorsFile::open(fs, dir / "fifo"); }), "regular file");
  ::alarm(0);
  EXPECT_CONTAINS(error_of([&] { SafetensorsFile::open(fs, "/dev/zero"); }), "regular file");
  EXPECT_CONTAINS(error_of([&] { SafetensorsFile::open(fs, dir.path()); }), "a directory");
  Exit exit = Exit::ok;
  EXPECT_CONTAINS(error_of([&] { SafetensorsFile::open(fs, dir / "none"); }, &exit), "No such file");
  EXPECT_EQ(exit, Exit::missing_input);
  EXPECT_CONTAINS(error_of([&] { SafetensorsFile::open(fs, std::string("a\0b", 3)); }), "cannot open");
}

// Any single damaged byte gives a file or an error, never a crash.
TEST_F(Safetensors, RandomDamageNeverCrashes) {
  const std::string whole = get_file(write(some_tensors()));
  std::mt19937_64 rng(3);
  int errors = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = whole;
    for (uint64_t n = rng() % 3 + 1; n > 0; --n) bytes[rng() % bytes.size()] = static_cast<char>(rng());
    errors += !error(bytes).empty();
  }
  EXPECT_GT(errors, 1000);
}

}  // namespace
}  // namespace lathe::io
