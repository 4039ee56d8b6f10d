#include "backend/opencl/kernel_library.h"

#include <fmt/format.h>

#include <utility>

#include "backend/kernels/call.h"
#include "backend/opencl/opencl_info.h"
#include "base/error.h"

namespace lathe {
namespace {

// Nothing that changes results: no fast-math, no denormal flags.
constexpr const char* kOptions = "-cl-std=CL1.2 -w";

}  // namespace

KernelLibrary::KernelLibrary(cl_context context, cl_device_id device, BinaryCache cache)
    : context_(context), device_(device), cache_(std::move(cache)) {}

const KernelLibrary::Text* KernelLibrary::add(const std::string& source) {
  auto& text = texts_[source];
  if (!text) {
    text = std::make_unique<Text>(Text{source, nullptr, ""});
    pending_.push_back(text.get());
  }
  return text.get();
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
  const OpenClApi& cl = opencl_api();
  std::string source = kernel_text::dialect;
  for (const Text* t : texts) source += "\n" + t->source;
  const std::string key = cache_key(device_identity(device_) + kOptions + "\n" + source);
  ClProgram program = from_cache(key);
  if (program) {
    ++cache_hits_;
  } else {
    const char* begin = source.c_str();
    const size_t length = source.size();
    cl_int status = CL_SUCCESS;
    program = ClProgram(cl.clCreateProgramWithSource(context_, 1, &begin, &length, &status));
    check_opencl(status, "clCreateProgramWithSource");
    status = cl.clBuildProgram(program.get(), 1, &device_, kOptions, nullptr, nullptr);
    if (status != CL_SUCCESS) {
      size_t size = 0;
      cl.clGetProgramBuildInfo(program.get(), device_, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
      std::string log(size, '\0');
      cl.clGetProgramBuildInfo(program.get(), device_, CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr);
      return fmt::format("opencl: {} cannot compile {} kernel text{}: {}\n{}", device_text(device_, CL_DEVICE_NAME),
                         texts.size(), texts.size() == 1 ? "" : "s", opencl_error_name(status), log.c_str());
    }
    ++builds_;
    to_cache(key, program.get());
  }
  for (Text* t : texts) t->program = program.get();
  programs_.push_back(std::move(program));
  return "";
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
