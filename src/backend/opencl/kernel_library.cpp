#include "backend/opencl/kernel_library.h"

#include <fmt/format.h>

#include <utility>

#include "backend/kernels/call.h"
#include "backend/opencl/opencl_info.h"
#include "backend/opencl/pocl_folder.h"
#include "base/error.h"

namespace lathe {
namespace {

// Nothing that changes results: no fast-math, no denormal flags.
constexpr const char* kOptions = "-cl-std=CL1.2 -w";

}  // namespace

KernelLibrary::KernelLibrary(cl_context context, cl_device_id device, BinaryCache cache, bool pocl_files)
    : context_(context), device_(device), cache_(std::move(cache)), pocl_files_(pocl_files && cache_.enabled()) {}

const KernelLibrary::Text* KernelLibrary::add(const std::string& source) {
  auto& text = texts_[source];
  if (!text) {
    text = std::make_unique<Text>(Text{source, nullptr, ""});
    pending_.push_back(text.get());
  }
  return text.get();
}

void KernelLibrary::keep() {
  for (const std::string& key : keys_) PoclFolder::of_process().keep(cache_, key);
  ran_when_kept_ = ran_;
}

void KernelLibrary::keep_now_and_then() {
  if (ran_ > 0 && ran_ >= 2 * ran_when_kept_ && ran_ != ran_when_kept_) keep();
}

ClKernel KernelLibrary::make(const Text* text, const std::string& kernel) {
  if (!text->program && text->error.empty()) build_pending();
  if (!text->error.empty()) throw DeviceError(text->error);
  cl_int status = CL_SUCCESS;
  ClKernel made(opencl_api().clCreateKernel(text->program, kernel.c_str(), &status));
  check_opencl(status, ("clCreateKernel " + kernel).c_str());
  return made;
}

void KernelLibrary::build_pending() {
  const std::vector<Text*> texts = std::exchange(pending_, {});
  std::string error = build(texts);
  if (error.empty()) return;
  if (texts.size() == 1) {
    texts[0]->error = std::move(error);
    return;
  }
  for (Text* t : texts) t->error = build({t});
}

std::string KernelLibrary::build(const std::vector<Text*>& texts) {
  std::string source = kernel_text::dialect;
  for (const Text* t : texts) source += "\n" + t->source;
  const std::string key = cache_key(device_identity(device_) + kOptions + "\n" + source);
  std::string log;
  ClProgram program;
  bool cached = false;
  if (pocl_files_) {
    cached = PoclFolder::of_process().build(cache_, key, [&] { program = from_source(source, &log); });
    if (program) keys_.push_back(key);
  } else {
    program = from_cache(key);
    cached = static_cast<bool>(program);
    if (!cached) program = from_source(source, &log);
    if (!cached && program) to_cache(key, program.get());
  }
  if (!program)
    return fmt::format("opencl: {} cannot compile {} kernel text{}: {}", device_text(device_, CL_DEVICE_NAME),
                       texts.size(), texts.size() == 1 ? "" : "s", log);
  ++(cached ? cache_hits_ : builds_);
  for (Text* t : texts) t->program = program.get();
  programs_.push_back(std::move(program));
  return "";
}

// Null, with the compiler's log, when it refuses.
ClProgram KernelLibrary::from_source(const std::string& source, std::string* log) {
  const OpenClApi& cl = opencl_api();
  const char* begin = source.c_str();
  const size_t length = source.size();
  cl_int status = CL_SUCCESS;
  ClProgram program(cl.clCreateProgramWithSource(context_, 1, &begin, &length, &status));
  check_opencl(status, "clCreateProgramWithSource");
  status = cl.clBuildProgram(program.get(), 1, &device_, kOptions, nullptr, nullptr);
  if (status == CL_SUCCESS) return program;
  size_t size = 0;
  cl.clGetProgramBuildInfo(program.get(), device_, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
  std::string text(size, '\0');
  cl.clGetProgramBuildInfo(program.get(), device_, CL_PROGRAM_BUILD_LOG, size, text.data(), nullptr);
  *log = fmt::format("{}\n{}", opencl_error_name(status), text.c_str());
  return {};
}

ClProgram KernelLibrary::from_cache(const std::string& key) {
  const OpenClApi& cl = opencl_api();
  const auto binary = cache_.load(key);
  if (!binary) return {};
  const unsigned char* begin = binary->data();
  const size_t length = binary->size();
  cl_int loaded = CL_SUCCESS, status = CL_SUCCESS;
  ClProgram program(cl.clCreateProgramWithBinary(context_, 1, &device_, &length, &begin, &loaded, &status));
  // A driver may refuse a binary for reasons of its own: then the text is compiled again.
  if (status != CL_SUCCESS || loaded != CL_SUCCESS) return {};
  if (cl.clBuildProgram(program.get(), 1, &device_, kOptions, nullptr, nullptr) != CL_SUCCESS) return {};
  return program;
}

void KernelLibrary::to_cache(const std::string& key, cl_program program) const {
  if (!cache_.enabled()) return;
  const OpenClApi& cl = opencl_api();
  size_t size = 0;
  if (cl.clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, nullptr) != CL_SUCCESS || size == 0)
    return;
  std::vector<unsigned char> binary(size);
  unsigned char* begin = binary.data();
  if (cl.clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof begin, static_cast<void*>(&begin), nullptr) !=
      CL_SUCCESS)
    return;
  cache_.store(key, binary);
}

}  // namespace lathe
