/* Memory of other processes on the same node, read in one copy (process_vm_readv). */
#ifndef PLAIT_TRANSPORT_NODE_READ_H
#define PLAIT_TRANSPORT_NODE_READ_H

#include "plait/status.h"

#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Allows every process of the node to read this one, as far as the system lets it. */
void plait_node_expose(void);

/* Looks for `nonce` at `address` in process pid: 0, or errno, or -1 if something else
 * is there (another process: pid namespaces). */
int plait_node_probe(pid_t pid, uint64_t address, uint64_t nonce);

/* Gathers remote into local; both have the same number of bytes. rank and peer are for
 * the error text. PEER if the process is gone, else TRANSPORT. */
plait_status_t plait_node_read(int rank, int peer, pid_t pid, const struct iovec *local,
                               int64_t n_local, const struct iovec *remote,
                               int64_t n_remote);

#endif
