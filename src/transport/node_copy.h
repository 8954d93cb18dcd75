/* Memory of other processes on the same node, read or written in one copy (process_vm_readv,
 * process_vm_writev). */
#ifndef PLAIT_TRANSPORT_NODE_COPY_H
#define PLAIT_TRANSPORT_NODE_COPY_H

#include "plait/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Allows every process of the node to read and write this process's memory, as far as the system permits it. */
void plait_node_expose(void);

/* Looks for `nonce` at `address` in process pid. Returns 0, or errno, or -1 if something else is there (another
 * process: pid namespaces). */
int plait_node_probe(pid_t pid, uint64_t address, uint64_t nonce);

/* Whether `nonce` can be written to `address` in process pid, and is there afterwards. */
bool plait_node_probe_write(pid_t pid, uint64_t address, uint64_t nonce);

/* Gathers remote into local; both have the same number of bytes. rank and peer are for
 * the error text. PEER if the process is gone, else TRANSPORT. */
plait_status_t plait_node_read(int rank, int peer, pid_t pid, const struct iovec *local,
                               int64_t n_local, const struct iovec *remote,
                               int64_t n_remote);

/* Scatters local to remote, otherwise the same. */
plait_status_t plait_node_write(int rank, int peer, pid_t pid,
                                const struct iovec *local, int64_t n_local,
                                const struct iovec *remote, int64_t n_remote);

#endif
