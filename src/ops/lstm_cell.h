// One step of a recurrent network. Weights stand as in a dense layer, [out, in]; the gates one after another.
//   lstm_cell(x [B, I], h [B, H], c [B, H], w_x [4H, I], w_h [4H, H], b [4H]) -> h', c'
//     i, f, g, o = x w_x^T + h w_h^T + b;  c' = sigmoid(f) c + sigmoid(i) tanh(g);  h' = sigmoid(o) tanh(c')
//   gru_cell(x [B, I], h [B, H], w_x [3H, I], w_h [3H, H], b_x [3H], b_h [3H]) -> h'
//     r, z, n of x w_x^T + b_x and of h w_h^T + b_h;  n' = tanh(n_x + sigmoid(r) n_h);  h' = (1 - z') n' + z' h
#pragma once

#include "ir/builder.h"

namespace lathe {

struct LstmState {  // State of an LSTM.
  Value h, c;       // what the cell says, and what it remembers: [B, H]
};
LstmState lstm_cell(Value x, LstmState, Value w_x, Value w_h, Value b);
Value gru_cell(Value x, Value h, Value w_x, Value w_h, Value b_x, Value b_h);
extern const OpDef gru_cell_op;
extern const OpDef lstm_cell_op;

}  // namespace lathe
