// Lathe's public interface: everything that programs outside may use, and all that the command line itself uses.
//
//   #include <lathe/lathe.h>        find_package(lathe) and link lathe::lathe, or pkg-config lathe
//
// What is reachable from here is public: it is documented, installed, and follows the version (base/version.h). Headers
// that are not reachable from here are not installed. docs/api.md is the way in; examples/api has whole programs.
#pragma once

// Numbers, shapes, errors.
#include "base/error.h"
#include "base/shape.h"
#include "base/version.h"

// Graphs: built, printed, checked, interpreted; ops of one's own.
#include "ir/builder.h"
#include "ir/interpret.h"
#include "ir/print.h"
#include "ir/rewrite.h"
#include "ir/target.h"
#include "ir/verify.h"
#include "ops/broadcast.h"
#include "ops/cast.h"
#include "ops/concat.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/gather.h"
#include "ops/grad.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/registry.h"
#include "ops/reshape.h"
#include "ops/slice.h"
#include "ops/softmax.h"
#include "ops/transpose.h"

// Networks: layers, model families of one's own.
#include "nn/layers.h"
#include "nn/model.h"

// Passes of one's own; gradients of ops checked.
#include "passes/check_gradient.h"
#include "passes/pass.h"

// Devices and single graphs on them.
#include "backend/backend.h"
#include "backend/cpu/isa.h"
#include "run/run_graph.h"

// Recipes, data of one's own, plans, training, evaluation, prediction.
#include "data/arrays.h"
#include "plan/certificate.h"
#include "train/compile.h"
#include "train/lr_find.h"
#include "train/memory_curve.h"
#include "train/outside.h"
#include "train/predictor.h"
#include "train/profile.h"
#include "train/progress.h"
#include "train/recipe.h"
#include "train/report.h"
#include "train/runs.h"
#include "train/targets.h"
#include "train/text_writer.h"
#include "train/trainer.h"

// Checks and measurements: what `lathe selftest` and `lathe bench` show.
#include "backend/cuda/cuda_measure.h"
#include "backend/opencl/tune_device.h"
#include "run/bench_op.h"
#include "run/bench_op_gemm.h"
#include "run/conformance.h"
#include "run/peak.h"
#include "train/bench_loader.h"
#include "train/selftest.h"
#include "train/workload.h"

// Small helpers of programs.
#include "base/stopwatch.h"
#include "io/text_file.h"
#include "train/words.h"
