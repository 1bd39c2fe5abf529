// Bytes and operations of a kernel, as the fake device's ledger counts them.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

namespace ddp::test::fake_cuda {

/// Counts `op`, called with `arguments`, whose results lie on top of `stack`: every tensor argument
/// is read once and every result written once; `out` is only written.
void account(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
             const torch::jit::Stack& stack);

}  // namespace ddp::test::fake_cuda
