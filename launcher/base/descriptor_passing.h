// Open descriptors as messages between processes, over a pair of Unix sockets (SOCK_SEQPACKET).
#pragma once

namespace ddp::launch {

/// Sends a copy of `fd`; never blocks. False with errno: EAGAIN if the socket takes no more for
/// now.
bool pass_descriptor(int socket, int fd);
/// The next one, closed on exec; never blocks. -1 with errno: EAGAIN if there is none for now, 0 at
/// end-of-file, EPROTO if a message held none.
int receive_descriptor(int socket);

}  // namespace ddp::launch
