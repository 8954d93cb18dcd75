#include "transport/node.h"

#include "base/checked.h"
#include "base/status.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/prctl.h>

/* A place in a list of memory ranges. */
typedef struct {
    const struct iovec *list;
    int64_t n;
    int64_t done_bytes; /* of list[0] */
} cursor_t;

void plait_node_expose(void)
{
    /* Refused by kernels without Yama, which need no permission: the probe decides. */
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

int plait_node_probe(pid_t pid, uint64_t address, uint64_t nonce)
{
    uint64_t found = ~nonce;
    struct iovec local = {.iov_base = &found, .iov_len = sizeof(found)};
    struct iovec remote = {.iov_base = (void *)(uintptr_t)address,
                           .iov_len = sizeof(found)};
    ssize_t n = process_vm_readv(pid, &local, 1, &remote, 1, 0);

    if (n < 0) {
        return errno;
    }
    return (found == nonce) ? 0 : -1;
}

static void skip_empty(cursor_t *cursor)
{
    while ((cursor->n > 0) && (cursor->list[0].iov_len == (size_t)cursor->done_bytes)) {
        cursor->list++;
        cursor->n--;
        cursor->done_bytes = 0;
    }
}

static void advance(cursor_t *cursor, int64_t n_bytes)
{
    skip_empty(cursor);
    while (n_bytes > 0) {
        int64_t step =
            plait_min(n_bytes, (int64_t)cursor->list[0].iov_len - cursor->done_bytes);
        cursor->done_bytes += step;
        n_bytes -= step;
        skip_empty(cursor);
    }
}

/* The next ranges for one call: the list itself, or a copy whose first range is cut. */
static const struct iovec *window(const cursor_t *cursor, struct iovec copy[IOV_MAX],
                                  int64_t *n_p)
{
    const struct iovec *at = cursor->list;

    *n_p = plait_min(cursor->n, IOV_MAX);
    if (cursor->done_bytes > 0) {
        memcpy(copy, cursor->list, (size_t)*n_p * sizeof(copy[0]));
        copy[0].iov_base = (char *)copy[0].iov_base + cursor->done_bytes;
        copy[0].iov_len -= (size_t)cursor->done_bytes;
        at = copy;
    }
    return at;
}

/* One call moves as much as both windows hold: at most IOV_MAX ranges and about 2 GiB,
 * and less where it meets memory that it cannot read; the next call then says why. */
plait_status_t plait_node_read(int rank, int peer, pid_t pid, const struct iovec *local,
                               int64_t n_local, const struct iovec *remote,
                               int64_t n_remote)
{
    plait_status_t status = PLAIT_OK;
    struct iovec copy_to[IOV_MAX];
    struct iovec copy_from[IOV_MAX];
    cursor_t to = {local, n_local, 0};
    cursor_t from = {remote, n_remote, 0};

    skip_empty(&to);
    skip_empty(&from);
    while ((to.n > 0) && (from.n > 0)) {
        int64_t n_to = 0;
        int64_t n_from = 0;
        const struct iovec *here = window(&to, copy_to, &n_to);
        const struct iovec *there = window(&from, copy_from, &n_from);
        ssize_t n = process_vm_readv(pid, here, (unsigned long)n_to, there,
                                     (unsigned long)n_from, 0);
        if ((n < 0) && (errno == EINTR)) {
            continue;
        }
        PLAIT_CHECK(n > 0,
                    (n < 0 && errno == ESRCH) ? PLAIT_ERR_PEER : PLAIT_ERR_TRANSPORT,
                    "rank %d cannot read memory of rank %d (process %d): %s", rank,
                    peer, (int)pid, (n < 0) ? strerror(errno) : "nothing was read");
        advance(&to, n);
        advance(&from, n);
    }
    PLAIT_CHECK((to.n == 0) && (from.n == 0), PLAIT_ERR_INTERNAL,
                "rank %d read from rank %d: the sides differ in size", rank, peer);
done:
    return status;
}
