// Fields that several types of layers have.
#pragma once

#include "nn/layer_types/layer_type.h"

namespace lathe {

inline constexpr double kMaxWidth = 1 << 20, kMaxChannels = 65536;

template <class F, class P>
void out_field(F&& f, int64_t P::*member) {
  f("out", member, allow::required(allow::range(0, kMaxWidth)),
    "width of the output; 0: the number of classes or tokens");
}

template <class F, class P>
void channels_field(F&& f, int64_t P::*member) {
  f("out", member, allow::required(allow::range(0, kMaxChannels)),
    "channels of the output; 0: the number of classes, or of the channels of an image");
}

template <class F, class P>
void padding_field(F&& f, int64_t P::*member) {
  f("padding", member, allow::or_word(allow::range(0, 1024), "same", -1),
    "pixels at each side, or \"same\": the size of the output is that of the input / stride");
}

template <class F, class P>
void bias_field(F&& f, bool P::*member) {
  f("bias", member, "adds a bias");
}

template <class F, class P>
void heads_field(F&& f, int64_t P::*member) {
  f("heads", member, allow::range(1, 1024), "attention heads; must divide the width");
}

template <class F, class P>
void causal_field(F&& f, bool P::*member) {
  f("causal", member, "a position sees those before it alone; needed for text");
}

template <class F, class P>
void eps_field(F&& f, double P::*member) {
  f("eps", member, allow::range(0, 1), "added to the variance");
}

}  // namespace lathe
