#include "recipe/recipe_errors.h"

#include <gtest/gtest.h>

#include <ctime>

#include "base/error.h"
#include "recipe/recipe.h"
#include "recipe/recipe_keys.h"

namespace lathe {
namespace {

// The message of the error, which must be a bad recipe.
std::string error_of(const std::string& text, const Sets& sets = {}) {
  try {
    parse_recipe(text, "a.toml", sets);
  } catch (const UserError& e) {
    EXPECT_EQ(e.exit_code(), Exit::bad_recipe) << e.what();
    return e.what();
  }
  return "no error";
}

struct Bad {
  std::string text;
  std::string message;
};

const std::string kOne = "expected one of ";

TEST(RecipeErrors, HavePositionKeyExpectationAndHint) {
  const Bad table[] = {
      // unknown keys
      {"sed = 1", "a.toml:1:1: sed: unknown key; did you mean \"seed\"?"},
      {"[train]\nbatchsize = 3", "a.toml:2:1: train.batchsize: unknown key; did you mean \"train.batch_size\"?"},
      {"[train]\nbatch = 3", "a.toml:2:1: train.batch: unknown key; did you mean \"train.batch_size\"?"},
      {"lr = 0.1", "a.toml:1:1: lr: unknown key; did you mean \"optimizer.lr\"?"},
      {"[optimiser]\nlr = 0.1", "a.toml:1:2: optimiser: unknown key; did you mean \"optimizer\"?"},
      {"[train]\nlr = 0.1", "a.toml:2:1: train.lr: unknown key; did you mean \"optimizer.lr\"?"},
      {"[optimizer]\nmomentmu = 0.1",
       "a.toml:2:1: optimizer.momentmu: unknown key; did you mean \"optimizer.momentum\"?"},
      {"[data.augmnt]\nflip = true", "a.toml:1:7: data.augmnt: unknown key; did you mean \"data.augment\"?"},
      {"data.augment.flipp = true",
       "a.toml:1:14: data.augment.flipp: unknown key; did you mean \"data.augment.flip\"?"},
      {"xyzzy = 1", "a.toml:1:1: xyzzy: unknown key"},
      {"\"a\\nb\" = 1", "a.toml:1:1: a\\x0ab: unknown key"},
      {"[device]\nnme = \"cpu\"", "a.toml:2:1: device.nme: unknown key; did you mean \"device.name\"?"},
      // wrong types
      {"seed = \"one\"", "a.toml:1:8: seed: expected an integer from 0 to 2147483647, got \"one\""},
      {"seed = 1.5", "a.toml:1:8: seed: expected an integer from 0 to 2147483647, got 1.5"},
      {"seed = true", "got true"},
      {"seed = [1]", "got a list of 1 item"},
      {"seed = 2020-01-01", "a.toml:1:8: seed: expected an integer from 0 to 2147483647, got a date or time"},
      {"name = 3", "a.toml:1:8: name: expected at most 100 letters, digits, '_', '-', '.', the first no '.', got 3"},
      {"[train]\n\n  epochs = \"5\"", "a.toml:3:12: train.epochs: expected an integer from 0 to 1000000, got \"5\""},
      {"data = 3", "a.toml:1:8: data: expected a table, got 3"},
      {"[[data]]\nsource = \"text\"", "a.toml:1:1: data: expected a table, got a list of 1 item"},
      {"[name]\nx = 1", "name: expected at most 100 letters, digits, '_', '-', '.', the first no '.', got a table"},
      {"[model]\nbatch_norm = 1", "a.toml:2:14: model.batch_norm: expected true or false, got 1"},
      {"[model]\nhidden = [5, \"x\"]",
       "a.toml:2:14: model.hidden[1]: expected a list of up to 256 integers from 1 to 1048576, got \"x\""},
      {"[model]\nhidden = \"x\"", "a.toml:2:10: model.hidden: expected a list of"},
      {"[model]\nhidden = [5, 1.5]", "a.toml:2:14: model.hidden[1]: expected a list of"},
      {"device = 3",
       "a.toml:1:10: device.name: expected \"auto\", \"cpu\", \"ref\", \"opencl\", \"opencl:N\", \"cuda\" or "
       "\"cuda:N\", got 3"},
      {"[optimizer]\nlr = \"fast\"", "a.toml:2:6: optimizer.lr: expected a number above 0 to 1000, got \"fast\""},
      {"[memory]\nbudget = \"5 apples\"",
       "a.toml:2:10: memory.budget: expected a size like \"512MiB\": a number of B, KiB, MiB, GiB, TiB (1024) or KB, "
       "MB, GB, "
       "TB (1000), got \"5 apples\""},
      {"[memory]\nbudget = \"-1\"", "memory.budget: expected a size"},
      {"[memory]\nbudget = -5", "memory.budget: expected a size"},
      {"[memory]\nbudget = \"999999999TiB\"", "memory.budget: expected a size"},
      // out of range
      {"seed = -1", "a.toml:1:8: seed: expected an integer from 0 to 2147483647, got -1"},
      {"seed = 2147483648", "got 2147483648"},
      {"seed = 9223372036854775807", "seed: expected an integer from 0 to 2147483647, got 9223372036854775807"},
      {"[train]\nbatch_size = 0", "a.toml:2:14: train.batch_size: expected an integer from 1 to 16777216, got 0"},
      {"[train]\naccumulate = 0", "a.toml:2:14: train.accumulate: expected an integer from 1 to 65536, got 0"},
      {"[optimizer]\nlr = 0", "a.toml:2:6: optimizer.lr: expected a number above 0 to 1000, got 0.0"},
      {"[optimizer]\nlr = nan", "a.toml:2:6: optimizer.lr: expected a number above 0 to 1000, got nan"},
      {"[optimizer]\nlr = inf", "got inf"},
      {"[optimizer]\nlr = -1e-3", "got -0.001"},
      {"[optimizer]\nmomentum = 1", "a.toml:2:12: optimizer.momentum: expected a number from 0 to below 1, got 1.0"},
      {"[model]\ndropout = 1.0", "expected a number from 0 to below 1, got 1.0"},
      {"[train]\nclip_norm = -1", "a.toml:2:13: train.clip_norm: expected a number of at least 0, got -1.0"},
      {"[train]\nclip_norm = inf", "train.clip_norm: expected a number of at least 0, got inf"},
      {"[data]\nshape = [28, 28]",
       "a.toml:2:9: data.shape: expected a list of 3 integers from 1 to 65536, got 2 items"},
      {"[data]\nshape = [28, 0, 1]", "a.toml:2:9: data.shape[1]: expected a list of 3 integers from 1 to 65536, got 0"},
      {"[data]\nnormalize.std = [0.0]", "a.toml:2:17: data.normalize.std[0]: expected"},
      {"[data]\nnormalize.mean = []", "data.normalize.mean: expected a list of 1 to 1024 numbers"},
      {"[data]\nthreads = 0", "data.threads: expected an integer from 1 to 256, got 0"},
      // choices
      {"[optimizer]\nname = \"adm\"", "\"lamb\", \"muon\", got \"adm\"; did you mean \"adam\"?"},
      {"[optimizer]\nname = \"SGD\"", "got \"SGD\"; did you mean \"sgd\"?"},
      {"[data]\nsource = \"fashion-mnist\"", "did you mean \"fashion_mnist\"?"},
      {"[model]\nfamily = \"transformer\"", "a.toml:2:10: model.family: " + kOne +
                                                "\"mlp\", \"cnn\", \"resnet\", \"mobilenetv2\", \"efficientnet\", "
                                                "\"vit\", \"mixer\", \"bert\", \"unet\", \"lstm\", \"gpt\", "
                                                "\"layers\", "
                                                "got \"transformer\""},
      {"[model]\nfamily = \"resnt\"", "did you mean \"resnet\"?"},
      {"[train]\nupdate = \"after_al\"", "did you mean \"after_all\"?"},
      {"[checkpoint]\nverify = \"sizes\"", "did you mean \"size\"?"},
      {"device = \"opncl\"",
       "a.toml:1:10: device.name: expected \"auto\", \"cpu\", \"ref\", \"opencl\", \"opencl:N\", \"cuda\" or "
       "\"cuda:N\", got "
       "\"opncl\"; did you mean "
       "\"opencl\"?"},
      {"device = \"opencl:\"", "device.name: expected"},
      {"device = \"opencl:x\"", "device.name: expected"},
      {"name = \"../x\"", "name: expected at most 100 letters"},
      {"name = \".x\"", "name: expected at most 100 letters"},
      // rules over several keys
      {"[train]\nupdate = \"at_gradient\"\nclip_norm = 1.0",
       "a.toml:2:10: train.update: expected \"after_all\" or \"auto\" with train.clip_norm > 0, got \"at_gradient\"; "
       "the norm"},
      {"[train]\nupdate = \"at_gradient\"\naccumulate = 2",
       "a.toml:2:10: train.update: expected \"after_all\" or \"auto\" with train.accumulate > 1"},
      {"[train]\nupdate = \"at_gradient\"\non_nan = \"skip\"", "with train.on_nan = \"skip\""},
      {"[data]\nsource = \"text\"\n[model]\nfamily = \"gpt\"\nwidth = 10\nheads = 3",
       "a.toml:6:9: model.heads: expected a divisor of model.width = 10, got 3"},
      {"[data]\nsource = \"text\"\n[model]\nfamily = \"gpt\"\nwidth = 10",
       "a.toml:5:9: model.heads: expected a divisor"},
      {"[data]\nsource = \"text\"\nsequence = 200\n[model]\nfamily = \"gpt\"",
       "a.toml:3:12: data.sequence: expected at most model.sequence = 128, got 200"},
      {"[data]\nsource = \"text\"\n[model]\nfamily = \"gpt\"\nvocab = 300",
       "a.toml:5:9: model.vocab: expected at most 256"},
      {"[data]\nsource = \"text\"\naugment.flip = true\n[model]\nfamily = \"gpt\"",
       "a.toml:3:16: data.augment.flip: has no effect: it is for images with data.target = \"class\" or \"value\" "
       "only; remove it"},
      {"[optimizer]\nname = \"sgd\"\nbeta1 = 0.5",
       "a.toml:3:9: optimizer.beta1: has no effect: it is for optimizer.name = \"adam\", \"adamw\", \"adamax\", "
       "\"radam\", \"lion\", "
       "\"lamb\" or \"muon\" only; remove it"},
      {"[schedule]\ngamma = 0.5",
       "a.toml:2:9: schedule.gamma: has no effect: it is for schedule.name = \"step\", \"exponential\" or \"plateau\" "
       "only"},
      {"[optimizer]\nname = \"adam\"\nmomentum = 0.5", "a.toml:3:12: optimizer.momentum: has no effect"},
      {"[optimizer]\ncentered = true",
       "a.toml:2:12: optimizer.centered: has no effect: it is for optimizer.name = \"rmsprop\" only"},
      {"[optimizer]\nlookahead_alpha = 0.8",
       "a.toml:2:19: optimizer.lookahead_alpha: has no effect: it is for optimizer.lookahead > 0"},
      {"[optimizer]\nlookahead = -1",
       "a.toml:2:13: optimizer.lookahead: expected an integer from 0 to 1000000, got -1"},
      {"[optimizer]\nname = \"muon\"\nmomentum = 0", "optimizer.nesterov: expected optimizer.momentum above 0"},
      {"[schedule]\nname = \"one_cycle\"\nwarmup_steps = 5", "a.toml:3:16: schedule.warmup_steps: has no effect"},
      {"[schedule]\nname = \"wsd\"", "a.toml:2:8: schedule.name: " + kOne + "\"constant\", \"step\""},
      {"[schedule]\npatience = 5",
       "a.toml:2:12: schedule.patience: has no effect: it is for schedule.name = \"plateau\" only"},
      {"[schedule]\nname = \"linear\"\nmin_lr = 1.0",
       "a.toml:3:10: schedule.min_lr: expected at most optimizer.lr = 0.1"},
      {"[schedule]\nname = \"plateau\"\n[train]\neval_every = 0",
       "a.toml:4:14: train.eval_every: expected at least 1 with schedule.name = \"plateau\", got 0"},
      {"[train]\npatience = 2\neval_every = 0",
       "a.toml:3:14: train.eval_every: expected at least 1 with train.patience > 0"},
      {"[train]\nmin_delta = 0.1", "a.toml:2:13: train.min_delta: has no effect: it is for train.patience > 0"},
      {"[train]\nmonitor = \"acuracy\"\npatience = 1", "did you mean \"accuracy\"?"},
      {"[train]\nema = 1", "a.toml:2:7: train.ema: expected a number from 0 to below 1, got 1.0"},
      {"[train]\nema = 0.9\nswa_from = 2", "a.toml:3:12: train.swa_from: expected one average of the weights"},
      {"[train]\nsam = -1", "a.toml:2:7: train.sam: expected a number from 0 to 100, got -1.0"},
      // parameter groups
      {"[optimizer]\ngroups = 3",
       "a.toml:2:10: optimizer.groups: expected a list of tables with match, lr_scale, weight_decay, frozen, got 3"},
      {"[optimizer]\ngroups = [3]", "a.toml:2:11: optimizer.groups[0]: expected a table with match"},
      {"[[optimizer.groups]]\nlr_scale = 2", "optimizer.groups[0]: expected `match`"},
      {"[[optimizer.groups]]\nmatch = 3",
       "a.toml:2:9: optimizer.groups[0].match: expected a pattern of parameter names"},
      {"[[optimizer.groups]]\nmatch = [\"a\", 3]", "optimizer.groups[0].match: expected a pattern"},
      {"[[optimizer.groups]]\nmatch = \"\"", "a.toml:2:9: optimizer.groups[0].match: expected a pattern"},
      {"[[optimizer.groups]]\nmatch = \"a\"\n[[optimizer.groups]]\nmatch = \"b\"\nlr_scal = 2",
       "a.toml:5:1: optimizer.groups[1].lr_scal: unknown key; did you mean \"lr_scale\"?"},
      {"[[optimizer.groups]]\nmatch = \"a\"\nfrozen = 1",
       "a.toml:3:10: optimizer.groups[0].frozen: expected true or false, got 1"},
      {"[[optimizer.groups]]\nmatch = \"a\"\nweight_decay = -1",
       "optimizer.groups[0].weight_decay: expected a number from 0 to 1000, got -1.0"},
      {"[model]\nchannels = [1]", "a.toml:2:12: model.channels: has no effect"},
      {"[train]\nsteps = 5\nepochs = 3", "a.toml:3:10: train.epochs: has no effect: it is for train.steps = 0 only"},
      {"[data]\nsource = \"csv\"", "a.toml:2:10: data.path: expected a csv file for data.source = \"csv\", got \"\""},
      {"[data]\ntarget = \"mask\"\nsource = \"synthetic\"",
       "a.toml:2:10: model.family: expected \"unet\" or \"layers\" for data.target = \"mask\", got \"mlp\""},
      {"[data]\ntarget = \"value\"",
       "a.toml:2:10: data.target: expected \"csv\", \"npy\", \"synthetic\" or arrays as data.source"},
      {"[model]\nfamily = \"unet\"", "a.toml:2:10: model.family: expected data.target = \"mask\" or \"image\" for"},
      {"[data]\nlabel = \"x\"", "a.toml:2:9: data.label: has no effect: it is for data.source = \"csv\" only"},
      {"[data]\nnoise = 3", "a.toml:2:9: data.noise: has no effect"},
      {"[data]\nsource = \"synthetic\"\nshape = [30, 32, 1]\ntarget = \"image\"\n[model]\nfamily = \"unet\"\n"
       "channels = [4, 8, 16]",
       "a.toml:7:12: model.channels: expected few enough sizes for images of 30 x 32"},
      {"[data]\nsource = \"synthetic\"\n[model]\nfamily = \"bert\"\ntokens = true",
       "a.toml:2:10: data.source: expected \"npy\" for model.family = \"bert\", got \"synthetic\""},
      {"[data]\nsource = \"synthetic\"\ntarget = \"value\"\n[train]\npatience = 2\nmonitor = \"accuracy\"",
       "a.toml:6:11: train.monitor: expected one of \"loss\", \"rmse\", \"mae\", \"r2\" for data.target = \"value\", "
       "got \"accuracy\""},
      {"[train]\npatience = 2\nmonitor = \"psnr\"",
       "a.toml:3:11: train.monitor: expected one of \"loss\", \"accuracy\" for data.target = \"class\", got \"psnr\""},
      {"[train]\npatience = 2\nmonitor = \"f1\"", "train.monitor: expected one of \"loss\", \"accuracy\", \"iou\", "},
      {"[data]\nsource = \"synthetic\"\ntarget = \"mask\"\nclasses = 40\n[model]\nfamily = \"unet\"\nchannels = [4, "
       "8]\n"
       "[train]\npatience = 1\nmonitor = \"iou\"",
       "train.monitor: expected another metric than \"iou\" for more than 32 classes, got 40"},
      {"[train]\nepochs = 6\nswa_from = 6",
       "a.toml:3:12: train.swa_from: expected an epoch before the last of train.epochs = 6"},
      {"[data]\nsource = \"synthetic\"\ntarget = \"value\"\n[train]\nloss = \"focal\"",
       "a.toml:5:8: train.loss: expected \"mse\", \"l1\", \"huber\", \"cosine\" or \"auto\" for data.target = "
       "\"value\", got "
       "\"focal\""},
      {"[train]\nloss = \"huber\"",
       "train.loss: expected \"cross_entropy\", \"focal\", \"bce\", \"kl\", \"triplet\", \"contrastive\" or \"auto\""},
      {"[data]\nsource = \"synthetic\"\ntarget = \"mask\"\n[model]\nfamily = \"unet\"\n[train]\nloss = \"triplet\"",
       "train.loss: expected \"cross_entropy\", \"focal\", \"bce\", \"kl\" or \"auto\" for data.target = \"mask\", got "
       "\"triplet\""},
      {"[train]\nmargin = 1", "train.margin: "},
      {"[train]\nloss = \"triplet\"\nbatch_size = 1", "expected at least 2 for \"triplet\""},
      {"[data]\nsource = \"text\"\n[model]\nfamily = \"gpt\"\n[train]\nloss = \"triplet\"",
       "of each token, got \"triplet\""},
      {"[data]\nsource = \"npy\"\npath = \"x\"\n[model]\nfamily = \"bert\"\ntokens = true\npadding = 256",
       "model.padding: expected a token below model.vocab = 256, or -1, got 256"},
      {"[data]\nsource = \"text\"", "a.toml:2:10: data.source: expected images"},
      {"[model]\nfamily = \"gpt\"",
       "a.toml:2:10: data.source: expected \"text\" for model.family = \"gpt\", got \"fashion_mnist\""},
      {"[data]\nsource = \"idx\"", "a.toml:2:10: data.path: expected the folder"},
      {"[data]\nclasses = 9", "a.toml:2:11: data.classes: expected 10"},
      {"[data]\ntrain_samples = 100",
       "a.toml:2:17: data.train_samples: expected at least train.batch_size = 128 samples, got 100"},
      {"[data]\ntrain_samples = 200\nvalidation = 0.5", "samples after data.validation, got 100"},
      {"[data]\nsource = \"arrays\"\ntarget = \"value\"\nclasses = 3\ntarget_mean = [1.0, 2.0]\ntarget_scale = [1.0, "
       "2.0]",
       "a.toml:5:15: data.target_mean: expected 1 number or one for each of 3 (data.classes), got 2"},
      {"[data]\nsource = \"arrays\"\ntarget = \"value\"\nclasses = 2\ntarget_mean = [1.0, 2.0]\ntarget_scale = 1.0",
       "a.toml:6:16: data.target_scale: expected as many numbers as data.target_mean (2), got 1"},
      {"[data]\nnormalize.mean = [0.1, 0.2]\nnormalize.std = 1", "a.toml:3:17: data.normalize.std: expected as many"},
      {"[data]\nnormalize.mean = [0.1, 0.2]\nnormalize.std = [1, 2]",
       "a.toml:2:18: data.normalize.mean: expected 1 number or one for each of 1 channels, got 2"},
      {"[data]\naugment.crop = 28", "a.toml:2:16: data.augment.crop: expected less than the image side 28, got 28"},
      {"[data]\naugment.cutout = 29", "data.augment.cutout: expected at most the image side 28"},
      {"[model]\nfamily = \"cnn\"\nchannels = [1, 2, 3, 4, 5]",
       "a.toml:3:12: model.channels: expected few enough stages"},
      {"[model]\nfamily = \"resnet\"\ndepth = 20", "a.toml:3:9: model.depth: expected 18, 34, 50 or 101, got 20"},
      {"[model]\nfamily = \"resnet\"\nwidth = 64", "a.toml:3:9: model.width: has no effect"},
      {"[model]\ndepth = 34", "a.toml:2:9: model.depth: has no effect: it is for model.family = \"resnet\" only"},
      {"[model]\nfamily = \"resnet\"\nstem = \"imagnet\"", "did you mean \"imagenet\"?"},
      {"[model]\nfamily = \"vit\"\npatch = 5",
       "a.toml:3:9: model.patch: expected a divisor of the image sides 28 and 28, got 5"},
      {"[model]\nfamily = \"mixer\"\npatch = 5",
       "a.toml:3:9: model.patch: expected a divisor of the image sides 28 and 28, got 5"},
      {"[model]\nfamily = \"vit\"\nwidth = 10\nheads = 4", "a.toml:4:9: model.heads: expected a divisor"},
      {"[model]\nfamily = \"vit\"\nactivation = \"gelu\"", "a.toml:3:14: model.activation: has no effect"},
      {"[data]\nsource = \"text\"\n[model]\nfamily = \"gpt\"\nkv_heads = 3",
       "a.toml:5:12: model.kv_heads: expected a divisor of model.heads = 4, got 3"},
      {"[data]\nsource = \"text\"\n[model]\nfamily = \"gpt\"\nwidth = 12\npositions = \"rotary\"",
       "a.toml:6:13: model.positions: expected an even model.width / model.heads for rotary positions, got 3"},
      {"[data]\nsource = \"text\"\n[model]\nfamily = \"gpt\"\nrotary_base = 5e5",
       "a.toml:5:15: model.rotary_base: has no effect: it is for model.positions = \"rotary\" only"},
      // lists of layers
      {"[model]\nfamily = \"layers\"", "a.toml:2:10: model.layers: expected [[model.layers]] tables"},
      {"[model]\nfamily = \"layers\"\n[[model.layers]]\ntype = \"cnv\"\nout = 3",
       "a.toml:4:8: model.layers[0]: unknown type, known: conv, conv1d,"},
      {"[model]\nfamily = \"layers\"\n[[model.layers]]\ntype = \"cnv\"\nout = 3",
       "got \"cnv\"; did you mean \"conv\"?"},
      {"[model]\nfamily = \"layers\"\n[[model.layers]]\ntype = \"conv\"\nout = 3\n  kernl = 5",
       "a.toml:6:3: model.layers[0].kernl: unknown key of conv, known: out, kernel, stride, padding, dilation, groups, "
       "bias, name, input, add, activation; did you mean \"kernel\"?"},
      {"[model]\nfamily = \"layers\"\n[[model.layers]]\ntype = \"conv\"\nout = 3\nactivation = \"rlu\"",
       "did you mean \"relu\"?"},
      {"[model]\nfamily = \"layers\"\n[[model.layers]]\nout = 3",
       "a.toml:3:1: model.layers[0]: expected type = one of"},
      {"[model]\nfamily = \"layers\"\n[[model.layers]]\ntype = \"dense\"", "model.layers[0]: dense needs out"},
      {"[model]\nfamily = \"layers\"\nlayers = [3]",
       "a.toml:3:11: model.layers[0]: expected a table like { type = \"conv\" }, got 3"},
      {"[model]\nfamily = \"layers\"\nlayers = [{ type = \"dense\", out = 5 }]",
       "a.toml:3:11: model.layers[0]: expected [N, 10] (a number for each class) as the output of the last layer, got "
       "[N, 5]"},
      {"[model]\nfamily = \"layers\"\n[[model.layers]]\ntype = \"global_pool\"\n[[model.layers]]\ntype = "
       "\"max_pool\"",
       "a.toml:5:1: model.layers[1]: max_pool: expected an image [N, height, width, channels], got [N, 1]"},
      {"[model]\nfamily = \"layers\"\n[[model.layers]]\ntype = \"resize\"\nfactor = 3\nheight = 14\nwidth = 14",
       "model.layers[0]: factor: expected either it or height and width, got both"},
      {"[model]\nfamily = \"layers\"\ndropout = 0.5\nlayers = [{ type = \"dense\", out = 10 }]",
       "a.toml:3:11: model.dropout: has no effect: it is for a model.family other than \"layers\""},
      {"[model]\nlayers = [{ type = \"dense\", out = 10 }]",
       "a.toml:2:10: model.layers: has no effect: it is for model.family = \"layers\" only"},
      {"[model]\nfamily = \"vit\"\nlayers = [{ type = \"dense\", out = 10 }]",
       "a.toml:3:10: model.layers: expected an integer from 1 to 4096, got a list of 1 item; that is for model.family "
       "= \"layers\""},
      {"[model]\nfamily = \"layers\"\nlayers = [{ type = \"embedding\", width = 4 }, { type = \"dense\", out = 0 }]",
       "data.source: expected \"text\" for model.family = \"layers\""},
      {"[optimizer]\nnesterov = true\nmomentum = 0",
       "a.toml:2:12: optimizer.nesterov: expected optimizer.momentum above 0"},
      {"[schedule]\nname = \"cosine\"\nmin_lr = 1.0",
       "a.toml:3:10: schedule.min_lr: expected at most optimizer.lr = 0.1, got 1"},
      // syntax
      {"seed = ", "a.toml:1:"},
      {"seed == 1", "a.toml:1:"},
      {"seed = 1\n\n[[[x]]]\n", "a.toml:3:1: expected a key or a table header"},
      {"[\x1bx]", "a.toml:1:1: expected a key or a table header"},
      {"seed\xef\xbb\x83 = 1", "a.toml:1:5: "},
      {"name = \"\"\"\\\xef\xbb\x83\"\"\"", "a.toml:1:"},
      {"[=", "a.toml:1:1: expected a key or a table header"},
      {"seed = 1\nseed = 2", "a.toml:2:"},
      {"[train]\n[train]", "a.toml:2:"},
      {"device = \"cpu\"\n[device]\nthreads = 2", "a.toml:2:"},
      {"name = \"\xff\xfe\"", "a.toml:1:"},
      {std::string("name = \"a\0b\"", 12), "a.toml:1:"},
      {"seed = 99999999999999999999", "a.toml:1:"},
      {"name = \"abc", "a.toml:1:"},
      {"\r\n\r\nseed = x", "a.toml:3:"},
  };
  for (const Bad& bad : table) {
    const std::string message = error_of(bad.text);
    EXPECT_NE(message.find(bad.message), std::string::npos)
        << bad.text << "\n  expected: " << bad.message << "\n  got:      " << message;
  }
  EXPECT_GE(std::size(table), 40u);
}

TEST(RecipeErrors, AreAllReportedInOrder) {
  const std::string message = error_of("[train]\nepochs = -1\n[data]\nsorce = 1\nthreads = 0\n", {"seed=x", "b=1"});
  EXPECT_EQ(message,
            "a.toml:2:10: train.epochs: expected an integer from 0 to 1000000, got -1\n"
            "a.toml:4:1: data.sorce: unknown key; did you mean \"data.source\"?\n"
            "a.toml:5:11: data.threads: expected an integer from 1 to 256, got 0\n"
            "--set seed: expected an integer from 0 to 2147483647, got \"x\"\n"
            "--set b: unknown key");
}

// Keys of a family that is not known are judged by nobody: they may be of a program, or of the family that was meant.
TEST(RecipeErrors, OfAnUnknownFamilyTheNameIsTheError) {
  const std::string settings = "\nsprockets = 3\nhidden = 'x'\n[model.sub]\na = 1\n";
  const std::string program = error_of("[model]\nfamily = 'sprocket_net'" + settings);
  EXPECT_TRUE(program.starts_with("a.toml:2:10: model.family: expected one of")) << program;
  EXPECT_TRUE(
      program.ends_with("got \"sprocket_net\"; if the run was made by a program with a family of its own "
                        "(register_family, docs/api.md), only such a program can open it"))
      << program;
  EXPECT_TRUE(error_of("[model]\nfamily = 'mpl'" + settings).ends_with("did you mean \"mlp\"?"));
  const std::string known = error_of("[model]\nfamily = 'sprocket_net'" + settings, {"model.family=mlp"});
  EXPECT_NE(known.find("a.toml:3:1: model.sprockets: unknown key"), std::string::npos) << known;
}

TEST(RecipeErrors, LimitsHold) {
  const std::clock_t start = std::clock();  // of this process: the machine may be busy
  EXPECT_NE(error_of(std::string((1 << 20) + 1, '#')).find("at most 1048576 bytes"), std::string::npos);
  std::string nested = "x = ";
  nested += std::string(10000, '[') + std::string(10000, ']');
  EXPECT_NE(error_of(nested).find("a.toml:1:21: expected at most 16 nested brackets"), std::string::npos);
  std::string dotted = "\na";
  for (int i = 0; i < 100000; ++i) dotted += ".a";
  EXPECT_NE(error_of(dotted + " = 1").find("a.toml:2:18: expected at most 8 nested parts"), std::string::npos);
  EXPECT_NE(error_of("[" + dotted.substr(1) + "]").find("expected at most 8 nested parts"), std::string::npos);
  std::string many;
  for (int i = 0; i < 50000; ++i) many += "k" + std::to_string(i) + "=1\n";
  EXPECT_NE(error_of(many).find("... and 49980 more errors"), std::string::npos);
  EXPECT_NE(error_of(std::string(100000, 'k') + " = 1").find("k...: unknown key"), std::string::npos);
  EXPECT_LT(std::clock() - start, 5 * CLOCKS_PER_SEC);
  // Dots and brackets in strings and comments are no nesting.
  EXPECT_EQ(
      parse_recipe(
          "data.path = \"../../../../../../../../../../../x[[[[[[[[[[[[[[[[[[[[\" # ..........[[[[[[[[[[[[[[[[[[[\n",
          "a.toml")
          .data.path.size(),
      54u);
  EXPECT_EQ(parse_recipe("data.path = \"\"\"x\"\"\"\"\" # [[[[[[[[[[[[[[[[[[[[[[", "a.toml").data.path, "x\"\"");
  EXPECT_EQ(parse_recipe("data.path = '''\n\\..........'''", "a.toml").data.path, "\\..........");
}

TEST(RecipeErrors, NameTheSet) {
  const std::pair<Sets, std::string> table[] = {
      {{"train.epochs"}, "--set train.epochs: expected key=value"},
      {{"=5"}, "--set =5: expected key=value"},
      {{"train.epoch=5"}, "--set train.epoch: unknown key; did you mean \"train.epochs\"?"},
      {{"train.epochs=many"}, "--set train.epochs: expected an integer from 0 to 1000000, got \"many\""},
      {{"train.epochs=1\nseed = 5"}, "--set train.epochs: expected an integer"},
      {{"train=5"}, "--set train: expected a table, got 5"},
      {{"train.epochs.x=5"}, "--set train.epochs.x: unknown key"},
      {{"device=gpu"}, "--set device.name: expected \"auto\", \"cpu\""},
      {{"model.hidden=a,b"}, "--set model.hidden: expected a list"},
      {{"train.update=at_gradient", "train.clip_norm=1"}, "--set train.update: expected \"after_all\""},
      {{"optimizer={nme=\"sgd\"}"}, "--set optimizer.nme: unknown key; did you mean \"optimizer.name\"?"},
      {{"seed=" + std::string(10000, '[')}, "--set seed: expected an integer from 0 to 2147483647, got \"[[["},
  };
  for (const auto& [sets, expected] : table) {
    const std::string message = error_of("", sets);
    EXPECT_NE(message.find(expected), std::string::npos) << expected << "\n  got: " << message;
  }
  // A rule broken by a set over the file is reported where the named key is.
  EXPECT_NE(error_of("[train]\nclip_norm = 1.0", {"train.update=at_gradient"}).find("--set train.update: expected"),
            std::string::npos);
}

TEST(RecipeErrors, KeysWithoutEffect) {
  // In a --set: always an error, whatever the value.
  EXPECT_NE(error_of("", {"optimizer.beta1=0.9"}).find("--set optimizer.beta1: has no effect"), std::string::npos);
  EXPECT_NE(error_of("", {"train.steps=3", "train.epochs=2"}).find("--set train.epochs"), std::string::npos);
  // A --set may give a key of the file its effect, or take it.
  EXPECT_EQ(parse_recipe("optimizer.beta1 = 0.5", "a.toml", {"optimizer.name=adam"}).optimizer.beta1, 0.5);
  const Recipe taken =
      parse_recipe("optimizer.momentum = 0.5\n[train]\nepochs = 3", "a.toml", {"optimizer.name=adam", "train.steps=7"});
  EXPECT_EQ(taken.optimizer.momentum, Recipe{}.optimizer.momentum);
  EXPECT_EQ(taken.train.epochs, Recipe{}.train.epochs);
  EXPECT_EQ(parse_recipe(to_toml(taken), "a.toml"), taken);
  // A file may write out the defaults.
  EXPECT_EQ(error_of("[schedule]\ngamma = 0.1"), "no error");
}

TEST(RecipeErrors, FoundLaterKnowTheirPlace) {
  const auto error = [](const Recipe& r) {
    try {
      throw_recipe_error(r, {"data.classes", "data.source"}, "expected more");
    } catch (const UserError& e) {
      EXPECT_EQ(e.exit_code(), Exit::bad_recipe);
      return std::string(e.what());
    }
  };
  EXPECT_EQ(error(parse_recipe("[data]\n  classes = 10", "a.toml")), "a.toml:2:13: data.classes: expected more");
  EXPECT_EQ(error(parse_recipe("[data]\nsource = \"synthetic\"", "a.toml")),
            "a.toml:2:10: data.classes: expected more");
  EXPECT_EQ(error(parse_recipe("", "a.toml", {"data.classes=10"})), "--set data.classes: expected more");
  EXPECT_EQ(error(Recipe{}), "data.classes: expected more");
}

}  // namespace
}  // namespace lathe
