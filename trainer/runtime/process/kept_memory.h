// Memory that the allocator keeps: the kernel need not hand it out, and clear it, again and again.
#pragma once

#include <cstddef>

namespace ddp::train {

/// What is freed stays with the process, up to 512 MB, unless it was a block of more than 32 MB.
void keep_freed_memory() noexcept;

/// The same, and so many bytes are there at once, in huge pages where the kernel gives them.
void keep_memory(std::size_t bytes);

}  // namespace ddp::train
